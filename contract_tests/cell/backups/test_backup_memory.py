"""Memory for a backup is bounded, however large it is."""

import filecmp
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 2**20
GROWTH_BYTES_MAX = 160 * MIB
# In a process of its own: the highest that this one ever had says nothing.
PROGRAM = """
import contextlib, json, pathlib, resource, shutil, sys
from cell.backups import reading, sealed_parts, writing
from cell.backups.manifest import BackupName, Manifest
from cell.backups.sealed_parts import SealedParts
from cell.backups.store import Store
from cell.engines.postgres import archive
from cell.runtime.engine_files import EnginePath

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

folder, target, key = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), bytes(32)
store = Store((target / "store").as_uri(), makes_folder=True)
name = BackupName("inst_1", "bkp_1")
small = target / "small"
small.mkdir()
(small / "file").write_bytes(b"1")
writing.write(store, key, BackupName("inst_1", "bkp_0"), small)
before = peak()
content = writing.write(store, key, name, folder)
wrote = peak()
shutil.rmtree(target / "store")
parts = SealedParts(target / "spool")
with contextlib.closing(writing.Writing(parts, key, name)) as output:
    archive.pack_into(EnginePath(folder), archive.Packing(output, "cluster"))
    content = output.finished()
sealed_parts.upload(store, name, sealed_parts.Packed(parts, content), lambda _: None)
packed = peak()
made = Manifest("inst_1", "bkp_1", "manual", "duckdb", "1", 1, 1.0, 2.0, content)
reading.unpack(store, key, made, target / "read")
print(json.dumps([before, wrote, packed, peak(), len(content.parts)]))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("mebibytes", [384, pytest.param(4096, marks=pytest.mark.timeout(900))])
def test_memory_does_not_grow_with_the_data(tmp_path: Path, mebibytes: int) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    # What cannot be compressed is all uploaded.
    for number in range(mebibytes // 64):
        with (folder / f"file-{number}").open("wb") as file:
            for _ in range(64):
                file.write(os.urandom(MIB))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(tmp_path)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    before, wrote, packed, read, parts = json.loads(done.stdout)
    assert parts > mebibytes // 20
    assert wrote - before < GROWTH_BYTES_MAX, (before, wrote)
    assert packed - before < GROWTH_BYTES_MAX, (before, packed)
    assert read - before < GROWTH_BYTES_MAX, (before, read)


# Of a gigabyte of which every other block has changed.
INCREMENT = """
import array, contextlib, json, os, pathlib, resource, sys
from cell.backups import lineage, sealed_parts, writing
from cell.backups.manifest import BackupName, Manifest, Parent
from cell.backups.sealed_parts import SealedParts
from cell.backups.store import Store
from cell.engines.increments import CopyMark
from cell.engines.postgres.changes import ChangedBlocks
from cell.engines.postgres.increments import MarkedPacking
from cell.runtime.engine_files import EnginePath

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def made(number, parent, *changed):
    name = BackupName("inst_1", f"bkp_{number}")
    parts = SealedParts(target / f"spool{number}")
    with contextlib.closing(writing.Writing(parts, key, name)) as output:
        packing = MarkedPacking(output, *changed)
        packing.tree(EnginePath(folder), lambda _: False)
        packing.finish()
        content = output.finished()
    sealed_parts.upload(store, name, sealed_parts.Packed(parts, content), lambda _: None)
    given = ("inst_1", f"bkp_{number}", "scheduled", "postgres", "18", 1, 1.0, 2.0, content)
    sealed = Manifest(*given, parent=parent).seal(key, b"")
    store.create(name.manifest, sealed)
    return Manifest.unseal(key, name, sealed), CopyMark("1", "1", 1, 1, packing.blocks)

folder, target, key = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), bytes(32)
store = Store((target / "store").as_uri(), makes_folder=True)
full, mark = made(1, None)
before = peak()
file = folder / "base" / "5" / "1"
numbers = range(0, file.stat().st_size // 8192, 2)
with file.open("r+b") as written:
    for number in numbers:
        written.seek(number * 8192)
        written.write(os.urandom(8192))
changed = ChangedBlocks()
listed = array.array("I", numbers)
listed.byteswap()
changed.add([(5, 1, False, listed.tobytes())])
last, _ = made(2, Parent("bkp_1", full.stored_sha256), changed, mark)
packed = peak()
whole = lineage.of(store, key, last)
lineage.unpack(store, key, whole, target / "read")
print(json.dumps([before, packed, peak()]))
"""


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_nor_does_it_with_what_has_changed(tmp_path: Path) -> None:
    relation = tmp_path / "data" / "base" / "5" / "1"
    relation.parent.mkdir(parents=True)
    with relation.open("wb") as file:
        for _ in range(1024):
            file.write(os.urandom(MIB))
    done = subprocess.run(
        [sys.executable, "-c", INCREMENT, str(tmp_path / "data"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, packed, unpacked = json.loads(done.stdout)
    assert max(packed, unpacked) - before < GROWTH_BYTES_MAX
    made = tmp_path / "read" / "cluster" / "base" / "5" / "1"
    assert filecmp.cmp(made, relation, shallow=False)
