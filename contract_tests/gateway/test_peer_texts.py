"""What a peer says is one line of printable characters, however it is written, and bounded."""

import pytest

from gateway.peer_texts import PEM_MAX, TEXT_MAX, all_printable, printable


@pytest.mark.parametrize("text", ["", "plain", "grün 東京 🦜", "two  spaces", r"a\x00"])
def test_what_is_printable_stays(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    "code", [0x00, 0x07, 0x1B, 0x7F, 0x9B, 0xAD, 0x200B, 0x202E, 0x2066, 0xD800, 0xDFFF, 0xFEFF]
)
def test_what_no_reader_sees_is_written_out(code: int) -> None:
    text = printable(f"a{chr(code)}b")
    assert text.isprintable()
    assert text.encode() == b"a" + chr(code).encode("unicode_escape") + b"b"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\u2028", "\x85", "\t"])
def test_lines_become_one(end: str) -> None:
    assert printable(f"a{end}{end}b{end}") == "a b"


def test_whatever_is_said_is_bounded() -> None:
    for text in ("a" * 10**6, "\0" * 10**6, "\n" * 10**6, "\U0001f99c" * 10**6):
        assert len(printable(text)) < TEXT_MAX + 50
        assert len(all_printable({"a_pem": text})["a_pem"]) < PEM_MAX + 50
        assert len(printable(text, 10)) < 50
