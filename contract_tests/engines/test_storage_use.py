"""How often the files of an instance are counted, whatever its engine."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from ulid import ULID

from cell.engines import storage_use
from cell.layout import Layout
from cell.runtime.folder_sizes import size_bytes
from contract_tests.engines.conftest import UID, Subject


class Disk:
    """A clock that counting takes half a second of, and how full a disk is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.counts, self.filled = 1000.0, 0, 0
        clock = SimpleNamespace(monotonic=lambda: self.now, thread_time=lambda: self.now)
        monkeypatch.setattr(storage_use, "time", clock)
        monkeypatch.setattr(storage_use, "size_bytes", self._count)
        monkeypatch.setattr(storage_use, "on_disk", lambda _site: self.filled)

    def _count(self, folder: Path) -> int:
        if folder.name == "data":
            self.counts += 1
            self.now += 0.5
        return self.counts


@pytest.mark.nightly
def test_what_takes_long_to_count_is_counted_less_often(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    for _ in range(20):
        subject.driver.metrics(subject.site, None)
        disk.now += 1
    assert disk.counts in {2, 3}


@pytest.mark.parametrize("subject", ["mariadb", "postgres"], indirect=True)
def test_it_is_counted_sooner_once_the_disk_fills(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody grows past the ceiling unseen, behind as many files as take long to count."""
    disk = Disk(monkeypatch)
    for _ in range(20):
        subject.driver.metrics(subject.site, None)
        disk.filled += storage_use.HURRIED_BYTES + 1
        disk.now += 1
    assert disk.counts in {9, 10, 11}, "after 1.5 s, thrice what each takes"


def test_files_and_bytes_fill_a_disk(tmp_path: Path) -> None:
    layout = Layout.make(tmp_path / "cell")
    site = layout.site(f"inst_{ULID()}", UID)
    site.make(None)
    with (site.data.outside / "filled").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 64 * 2**20)
        before = storage_use.on_disk(site)
        os.posix_fallocate(file.fileno(), 0, 512 * 2**20)
        assert storage_use.on_disk(site) - before > 256 * 2**20, "others free little meanwhile"


def test_each_instance_is_counted_by_itself(tmp_path: Path) -> None:
    layout, counted = Layout.make(tmp_path / "cell"), storage_use.StorageUse()
    for _ in range(2):
        site = layout.site(f"inst_{ULID()}", UID)
        site.make(None)
        assert counted.count(site, lambda _: 60.0) == (size_bytes(site.data), True)
        (site.data.outside / "more").write_bytes(b"x" * 10**6)
        assert counted.count(site) == (0, False)
        counted.forget(site)
        assert counted.count(site)[0] >= 10**6


def test_what_lies_beside_the_sockets_counts(tmp_path: Path) -> None:
    layout, counted = Layout.make(tmp_path / "cell"), storage_use.StorageUse()
    site = layout.site(f"inst_{ULID()}", UID)
    site.make(None)
    (site.run.outside / "engine.sock").touch()
    (site.run.outside / "engine.pid").write_text("7")
    assert counted.count(site)[0] == size_bytes(site.data), "what every engine has"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (site.run.outside / "folder").mkdir()
    (site.run.outside / "link").symlink_to(outside)
    (site.run.outside / "folder" / "link").symlink_to(outside)
    (site.run.outside / "folder" / "filled").write_bytes(b"x" * 3 * 2**20)
    counted.forget(site)
    assert counted.count(site)[0] > 2 * 2**20
    site.empty_run()
    assert list(site.run.outside.iterdir()) == []
    assert (outside / "kept").exists()


def test_what_is_kept_beyond_the_end_of_a_file_counts(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**8)
    assert size_bytes(tmp_path) == 10**8
    keeping = ["fallocate", "--keep-size", "--length=1000000", str(tmp_path / "sparse")]
    (tmp_path / "sparse").write_bytes(b"")
    subprocess.run(keeping, check=True)
    assert size_bytes(tmp_path) >= 10**6
