"""An append-only file is cut before a second: after a command, and before a transaction."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell.engines.resp import append_only

WORDS = st.one_of(
    st.binary(max_size=12),
    # What a value may look like, and is not.
    st.sampled_from([b"#TS:5\r\n", b"\r\n#TS:9\r\n*1\r\n$5\r\nMULTI\r\n", b"MULTI", b"exec"]),
    # Python reads no number of more than 4,300 digits.
    st.sampled_from([b"#TS:" + b"9" * 5000, b"\r\n#TS:" + b"9" * 12 + b"\r\n"]),
)
COMMANDS = st.lists(WORDS, max_size=3).map(lambda words: [b"SET", *words])
# In one second: commands by themselves, or of a transaction that is over.
GROUPS = st.lists(
    st.one_of(
        COMMANDS.map(lambda one: [one]),
        st.lists(COMMANDS, max_size=3).map(lambda some: [[b"MULTI"], *some, [b"EXEC"]]),
    ),
    max_size=3,
)


def told(words: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def note(at: int) -> bytes:
    return b"#TS:%d\r\n" % at


@given(seconds=st.lists(GROUPS, max_size=5), at=st.integers(0, 6), torn=st.booleans())
def test_what_was_run_before_the_second_is_left(
    tmp_path_factory: pytest.TempPathFactory,
    seconds: list[list[list[list[bytes]]]],
    at: int,
    torn: bool,
) -> None:
    written = [
        note(second) + b"".join(told(one) for group in groups for one in group)
        for second, groups in enumerate(seconds)
        if groups
    ]
    kept = [each for each in written if int(each[4 : each.index(b"\r")]) < at]
    path = tmp_path_factory.mktemp("log") / "log"
    tail = told([b"SET", b"unfinished"])[:-4] if torn and len(kept) == len(written) else b""
    path.write_bytes(b"".join(written) + tail)
    assert append_only.cut(path, at) == (len(kept) < len(written))
    assert path.read_bytes() == b"".join(kept) + tail


def test_a_transaction_that_is_not_over_is_left_out_as_a_whole(tmp_path: Path) -> None:
    path, before = tmp_path / "log", note(1) + told([b"SET", b"a", b"1"])
    inside = told([b"multi"]) + told([b"SET", b"a", b"2"])
    path.write_bytes(before + inside + note(2) + told([b"SET", b"a", b"3"]) + told([b"EXEC"]))
    assert append_only.cut(path, 2)
    assert path.read_bytes() == before


def test_a_file_that_is_no_log_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"*x\r\n" + note(2))
    with pytest.raises(ValueError, match="invalid literal"):
        append_only.cut(path, 1)
