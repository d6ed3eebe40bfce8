"""Memory for a backup is bounded, however large it is."""

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
