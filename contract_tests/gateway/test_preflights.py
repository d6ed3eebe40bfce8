"""When a page of another origin counts as logged in: its browser asks for leave first."""

import pytest

from gateway.protocols.https import HttpsDialogue

LEAVE = b"OPTIONS /indexes/a/search HTTP/1.1\r\nhost: x\r\norigin: https://page\r\n\r\n"
GIVEN = b"HTTP/1.1 200 OK\r\naccess-control-allow-origin: *\r\ncontent-length: 0\r\n\r\n"
ASKED = b"POST /indexes/a/search HTTP/1.1\r\nauthorization: x\r\ncontent-length: 2\r\n\r\n{}"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


def spoken(first: bytes, *said: tuple[str, bytes]) -> bool:
    """Whether who says this is let in by the last word."""
    dialogue = HttpsDialogue()
    assert dialogue.begin(bytearray(first))
    let_in = dialogue.opened(first, "inst_x", {}).spliced
    for who, data in said:
        step = dialogue.from_client(data) if who == "client" else dialogue.from_backend(data)
        assert (step.to_backend, step.to_client) == (
            (data, b"") if who == "client" else (b"", data)
        )
        let_in = step.spliced
    return let_in


def test_a_page_that_was_given_leave_is_let_in_by_what_it_asks_then() -> None:
    given, asked, answer = ("engine", GIVEN), ("client", ASKED), ("engine", ANSWER)
    assert spoken(LEAVE, given, asked, answer)
    assert spoken(LEAVE, ("engine", GIVEN[:20]), ("engine", GIVEN[20:]), asked, answer)
    assert spoken(LEAVE, given, ("client", ASKED[:30]), ("client", ASKED[30:]), answer)
    assert spoken(LEAVE, given, ("client", LEAVE), given, asked, answer)
    assert not spoken(LEAVE, given)
    assert not spoken(LEAVE, given, asked, ("engine", b"HTTP/1.1 403 Forbidden\r\n\r\n"))
    assert not spoken(LEAVE, given, ("client", ASKED.replace(b"authorization", b"x")), answer)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (LEAVE + ASKED, [("engine", GIVEN), ("engine", ANSWER)]),
        (LEAVE, [("client", ASKED), ("engine", GIVEN), ("engine", ANSWER)]),
        (LEAVE, [("engine", GIVEN[:20]), ("client", ASKED), ("engine", GIVEN[20:])]),
        (LEAVE, [("engine", GIVEN + ANSWER), ("client", ASKED), ("engine", ANSWER)]),
        (LEAVE, [("engine", ANSWER), ("client", ASKED), ("engine", ANSWER)]),
        (LEAVE, [("engine", GIVEN.replace(b"200", b"405")), ("client", ASKED), ("engine", ANSWER)]),
        (
            LEAVE.replace(b"host: x", b"content-length: 5"),
            [("engine", GIVEN), ("client", ASKED), ("engine", ANSWER)],
        ),
        (
            LEAVE.replace(b"host: x", b"transfer-encoding: chunked"),
            [("engine", GIVEN), ("client", ASKED), ("engine", ANSWER)],
        ),
    ],
)
def test_what_need_not_begin_where_a_message_does_lets_nobody_in(
    first: bytes, said: list[tuple[str, bytes]]
) -> None:
    assert not spoken(first, *said)
