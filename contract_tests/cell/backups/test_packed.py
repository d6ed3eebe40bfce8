"""A cluster's files, packed straight into sealed parts, and as earlier versions stored them."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from cell.backups import reading, sealed_parts, writing
from cell.backups.manifest import BackupName, Manifest, StoredContent
from cell.backups.sealed_objects import DamagedError
from cell.backups.sealed_parts import Packed, SealedParts
from cell.backups.store import Store, StoreError
from cell.engines.postgres import archive
from cell.engines.postgres.archive import Packing
from cell.runtime.engine_files import EnginePath

KEY = bytes(range(32))
NAME = BackupName("inst_01JD0000000000000000000000", "bkp_01JD0000000000000000000000")
MIB = 1 << 20


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Files of all lengths around that of a block, and more of them than blocks are kept."""
    made = tmp_path / "data"
    (made / "base" / "5" / "empty").mkdir(parents=True)
    for number in range(12):
        (made / "base" / "5" / f"{number}").write_bytes(os.urandom(number * MIB // 4 + number % 3))
    (made / "base" / ("long" * 40)).write_bytes(b"long")
    return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "store").mkdir()
    return Store((tmp_path / "store").as_uri())


def described(content: StoredContent) -> Manifest:
    return Manifest(NAME.instance_id, NAME.backup_id, "manual", "postgres", "18", 1, 1, 2, content)


def packed(data: Path, folder: Path) -> Packed:
    parts = SealedParts(folder)
    with closing(writing.Writing(parts, KEY, NAME)) as output:
        made = archive.pack_into(EnginePath(data), Packing(output, archive.UNPACKED))
        content = output.finished()
    assert made.size_bytes == content.stream_bytes
    assert made.sha256 == content.stream_sha256
    return Packed(parts, content)


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("verified", [False, True])
def test_what_was_packed_is_unpacked(
    store: Store, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verified: bool
) -> None:
    monkeypatch.setattr(writing, "PART_BYTES", MIB)
    made, done = packed(data, tmp_path / "spool"), list[int]()
    sealed_parts.upload(store, NAME, made, done.append)
    assert len(made.content.parts) > 2 * writing.AT_ONCE
    assert sum(done) <= made.content.stream_bytes
    target = tmp_path / "to"
    found = described(made.content)
    reading.unpack(store, KEY, found, target, archive=archive.NAME, verified=verified)
    assert tree(target / archive.UNPACKED) == tree(data)
    assert [path.name for path in target.iterdir()] == [archive.UNPACKED]
    # Nothing of the data can be read in the spool.
    names = {path.name for path in (tmp_path / "spool").iterdir()}
    assert names == {Path(NAME.part(number)).name for number in range(len(made.content.parts))}


def test_backups_of_earlier_versions_are_unpacked_to_the_same(
    store: Store, data: Path, tmp_path: Path
) -> None:
    """In those there was one file, with the archive of a snapshot."""
    archive.pack(EnginePath(data), tmp_path / "snapshot")
    found = described(writing.write(store, KEY, NAME, tmp_path / "snapshot"))
    reading.unpack(store, KEY, found, tmp_path / "to", archive=archive.NAME)
    assert tree(tmp_path / "to" / archive.UNPACKED) == tree(data)
    reading.unpack(store, KEY, found, tmp_path / "file")
    assert [path.name for path in (tmp_path / "file").iterdir()] == [archive.NAME]


def test_what_was_changed_in_the_spool_is_found(store: Store, data: Path, tmp_path: Path) -> None:
    made = packed(data, tmp_path / "spool")
    part = next((tmp_path / "spool").iterdir())
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    sealed_parts.upload(store, NAME, made, lambda _: None)
    with pytest.raises(DamagedError, match="not the one that was written"):
        reading.check(store, KEY, described(made.content))


def test_a_file_that_is_cut_off_reads_as_zeros(tmp_path: Path) -> None:
    """Also where the memory that it is read into had something else in it."""
    (tmp_path / "file").write_bytes(b"12345")
    blocks = iter([memoryview(bytearray(b"x" * MIB)) for _ in range(2)])
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        file = archive._Exactly(descriptor, MIB + 3, blocks)
        assert bytes(file.read(MIB)) == b"12345" + bytes(MIB - 5)
        assert bytes(file.read(MIB)) == bytes(3)
    finally:
        os.close(descriptor)


def test_a_store_that_is_away_ends_the_upload(data: Path, tmp_path: Path) -> None:
    made = packed(data, tmp_path / "spool")
    with pytest.raises(StoreError):
        sealed_parts.upload(Store((tmp_path / "none").as_uri()), NAME, made, lambda _: None)


def test_nothing_is_written_once_it_is_closed(tmp_path: Path) -> None:
    """What a canceled backup's thread still does leaves nothing in a folder that is removed."""
    parts = SealedParts(tmp_path / "spool")
    with closing(writing.Writing(parts, KEY, NAME)) as output:
        output.write(os.urandom(3))
    with pytest.raises(RuntimeError):
        output.finish()
    assert list((tmp_path / "spool").iterdir()) == []
