"""What is written goes to the disk while more is written, and is the same as without that."""

import tempfile
from itertools import pairwise
from pathlib import Path
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from cell.runtime import disks
from cell.runtime.disks import WritingBehind


@given(st.lists(st.binary(max_size=5_000), max_size=20))
def test_all_is_written_and_begins_its_way_once(blocks: list[bytes]) -> None:
    begun: list[tuple[int, int]] = []

    def begin_writing(_: int, start: int, count: int) -> bool:
        begun.append((start, start + count))
        return True

    with (
        tempfile.TemporaryFile() as file,
        mock.patch.object(disks, "STEP_BYTES", 6_000),
        mock.patch.object(disks, "begin_writing", begin_writing),
    ):
        writing = WritingBehind(file)
        assert [writing.write(each) for each in blocks] == [len(each) for each in blocks]
        file.seek(0)
        assert file.read() == b"".join(blocks)
    assert all(former == later for (_, former), (later, _) in pairwise([(0, 0), *begun]))
    written = sum(map(len, blocks))
    assert written - (begun[-1][1] if begun else 0) < 6_000


def test_a_file_system_takes_the_advice(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(1 << 20))
        file.flush()
        assert disks.begin_writing(file.fileno(), 0, 1 << 20)
        assert not disks.begin_writing(file.fileno(), -1, 1), "no range"
