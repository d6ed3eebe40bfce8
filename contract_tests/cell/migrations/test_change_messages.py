"""Changes as a server sends them: whatever it says is read within bounds, or refused."""

import struct

import pytest

from cell.migrations.errors import MigrationError
from cell.migrations.postgres.change_stream import position, written
from cell.migrations.postgres.pgoutput import UNCHANGED, Begin, Commit, Decoder, RowChange, Truncate
from cell.runtime.relay import MessageBound


def relation(identity: bytes = b"d") -> bytes:
    columns = b"\x01id\0" + struct.pack("!Ii", 23, -1) + b"\x00told\0" + struct.pack("!Ii", 25, -1)
    return b"R" + struct.pack("!I", 7) + b"public\0stock\0" + identity + b"\x00\x02" + columns


def text(value: bytes) -> bytes:
    return b"t" + struct.pack("!I", len(value)) + value


UPDATE = b"U\x00\x00\x00\x07K\x00\x02" + text(b"1") + b"nN\x00\x02" + text("ü".encode()) + b"u"
MESSAGES = (
    b"B" + struct.pack("!QqI", 100, 0, 5),
    b"I\x00\x00\x00\x07N\x00\x02" + text(b"1") + b"n",
    UPDATE,
    b"D\x00\x00\x00\x07K\x00\x02" + text(b"1") + b"n",
    b"T\x00\x00\x00\x01\x02\x00\x00\x00\x07",
    b"C\x00" + struct.pack("!QQq", 100, 130, 0),
)


def test_what_was_changed_is_read() -> None:
    decoder = Decoder()
    assert decoder.decode(relation()) is None
    begin, inserted, updated, deleted, truncated, commit = map(decoder.decode, MESSAGES)
    assert (begin, commit) == (Begin(100), Commit(130))
    assert isinstance(inserted, RowChange)
    assert (inserted.is_new, inserted.former, inserted.row) == (True, None, ("1", None))
    assert isinstance(updated, RowChange)
    assert (updated.former, updated.row) == (("1", None), ("ü", UNCHANGED))
    assert isinstance(deleted, RowChange)
    assert (deleted.former, deleted.row) == (("1", None), None)
    assert isinstance(truncated, Truncate)
    assert (truncated.restarts, truncated.relations) == (True, (deleted.relation,))
    assert (position("1/2A"), written(position("1/2A"))) == (2**32 + 42, "1/2A")


@pytest.mark.parametrize("whole", [relation(), *MESSAGES])
def test_what_is_cut_off_or_changed_is_refused(whole: bytes) -> None:
    """Never read past its end, and never as another value: each length is one that was sent."""
    for end in range(len(whole)):
        decoder = Decoder()
        decoder.decode(relation())
        with pytest.raises(MigrationError):
            decoder.decode(whole[:end])
    for unknown in (b"Z", b"I\x00\x00\x00\x09N\x00\x00", b"I\x00\x00\x00\x07N\x00\x01n"):
        decoder = Decoder()
        decoder.decode(relation())
        with pytest.raises(MigrationError):
            decoder.decode(unknown)


@pytest.mark.parametrize("at_once", [1, 3, 1000])
def test_a_message_is_bounded_and_not_their_sum(at_once: int) -> None:
    def are_within(content: bytes, bytes_max: int) -> bool:
        bound = MessageBound(bytes_max)
        blocks = (content[n : n + at_once] for n in range(0, len(content), at_once))
        return all(bound.within(block) == len(block) for block in blocks)

    messages = b"".join(b"d" + struct.pack("!I", 4 + n) + b"x" * n for n in (0, 7, 20, 1))
    assert are_within(messages, 24)
    assert not are_within(messages, 23)
    assert not are_within(b"d\x00\x00\x00\x03", 24)


def test_what_comes_before_a_message_that_is_too_large_is_passed_on() -> None:
    before, large = b"d\x00\x00\x00\x06ab", b"d\x00\x00\x00\xff"
    for size in range(1, 13):
        bound, passed = MessageBound(24), b""
        whole = before + large + b"x" * 10
        for block in (whole[at : at + size] for at in range(0, len(whole), size)):
            count = bound.within(block)
            passed += block[:count]
            if count < len(block):
                break
        assert passed.startswith(before)
        assert len(passed) < len(before + large)
