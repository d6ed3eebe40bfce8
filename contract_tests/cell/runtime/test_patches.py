"""Patches of files: what has changed comes to where it was, and nothing else is written."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cell.engines.postgres.changes import SEGMENT_BLOCKS, ChangedBlocks
from cell.runtime import patches
from cell.runtime.patches import BLOCK_BYTES, PatchError

OTHER = (5, 1)


class Content:
    """A patch that comes in pieces."""

    def __init__(self, content: bytes, piece: int) -> None:
        self._left = memoryview(content)
        self._piece = piece

    def take(self, wanted: int) -> memoryview:
        taken = self._left[: min(wanted, self._piece)]
        self._left = self._left[len(taken) :]
        return taken


def block(number: int) -> bytes:
    return number.to_bytes(2, "big") * (BLOCK_BYTES // 2)


def patched(path: Path, patch: bytes, piece: int = 5000) -> bytes:
    descriptor = os.open(path, os.O_RDWR)
    try:
        patches.apply(Content(patch, piece), len(patch), descriptor)
    finally:
        os.close(descriptor)
    return path.read_bytes()


@settings(max_examples=60, deadline=None)
@given(former=st.integers(0, 9), blocks=st.integers(0, 9), chosen=st.sets(st.integers(0, 9)))
def test_a_patched_file_has_the_new_blocks_and_the_others_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, former: int, blocks: int, chosen: set[int]
) -> None:
    path = tmp_path_factory.mktemp("patched") / "file"
    path.write_bytes(b"".join(block(number) for number in range(former)))
    numbers = sorted({*range(former, blocks), *(each for each in chosen if each < blocks)})
    content = b"".join(block(100 + number) for number in numbers)
    wanted = [block(100 + each if each in numbers else each) for each in range(blocks)]
    assert patched(path, patches.header(blocks, numbers) + content) == b"".join(wanted)
    assert patched(path, b"") == b"".join(wanted), "nothing of it has changed"


@pytest.mark.parametrize(
    ("blocks", "numbers", "cut"),
    [
        (3, [1, 1], 0),
        (3, [2, 1], 0),
        (3, [3], 0),
        (4, [1], 0),
        (5, [4], 0),
        (2, [0, 1, 2], 0),
        (patches.BLOCKS_MAX + 1, [], 0),
        (3, [1], 1),
        (3, [1], BLOCK_BYTES),
        (3, [1], BLOCK_BYTES + 6),
    ],
)
def test_what_is_no_patch_of_the_file_is_refused(
    tmp_path: Path, blocks: int, numbers: list[int], cut: int
) -> None:
    path = tmp_path / "file"
    former = b"".join(block(number) for number in range(3))
    path.write_bytes(former)
    patch = patches.header(blocks, numbers) + bytes(len(numbers) * BLOCK_BYTES)
    with pytest.raises(PatchError):
        patched(path, patch[: len(patch) - cut])
    assert path.read_bytes() == former


def changed(*rows: tuple[int, int, bool, list[int]]) -> ChangedBlocks:
    found = ChangedBlocks()
    found.add(
        (database, relation, is_limit, b"".join(each.to_bytes(4, "big") for each in numbers))
        for database, relation, is_limit, numbers in rows
    )
    return found


def test_a_block_is_copied_where_it_may_be_another() -> None:
    found = changed((5, 1, False, [3, 40, 7]), (5, 1, False, [8]), (0, 1, False, [0]))
    assert found.needed("base/5/1", 50, 50) == [3, 7, 8, 40]
    assert found.needed("base/5/1", 10, 50) == [3, 7, 8], "it was cut off"
    assert found.needed("base/5/1", 52, 50) == [3, 7, 8, 40, 50, 51], "nobody has the last two"
    assert found.needed("base/5/2", 50, 50) == [], "nothing of it changed"
    assert found.needed("global/1", 50, 50) == [0]
    # No more is left out than the other copy has, and what was cut off meanwhile is begun anew.
    limited = changed((5, 1, False, [3]), (5, 1, True, [45]))
    assert limited.needed("base/5/1", 50, 50) == [3, 45, 46, 47, 48, 49]
    for whole in (changed((5, 1, True, [0])), changed((5, 0, True, [0]))):
        assert whole.needed("base/5/1", 50, 50) is None
        assert whole.needed("base/6/1", 50, 50) == []
    assert found.needed("base/5/1", 50, None) is None, "it is in no copy"
    for other in ("base/5/1_vm", "base/5/1_fsm", "base/5/1_init", "pg_xact/0000", "base/5/t1_1"):
        assert found.needed(other, 50, 50) is None
    assert found.needed("base/5/1", 4, 4) == [3]
    assert changed((5, 1, False, [0, 1, 2, 3])).needed("base/5/1", 4, 4) is None


def test_blocks_are_those_of_their_gigabyte() -> None:
    found = changed((5, 1, False, [2]), (5, 1, False, [SEGMENT_BLOCKS + 3]))
    assert found.needed("base/5/1", SEGMENT_BLOCKS, SEGMENT_BLOCKS) == [2]
    assert found.needed("base/5/1.1", 50, 50) == [3]
    limited = changed((5, 1, True, [SEGMENT_BLOCKS + 48]))
    assert limited.needed("base/5/1", 50, 50) == []
    assert limited.needed("base/5/1.1", 50, 50) == [48, 49]
    assert limited.needed("base/5/1.2", 50, 50) is None
