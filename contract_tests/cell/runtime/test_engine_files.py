"""Whatever an engine puts into its folders: nothing outside of them is reached through it."""

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from cell.engines import duckdb, file_snapshots, search
from cell.engines.driver import EngineError
from cell.engines.mysql import files as mysql_files
from cell.engines.postgres import archive, data_folder, server, upgrade
from cell.engines.resp import files as resp_files
from cell.engines.resp import functions
from cell.instances import snapshots
from cell.layout import Layout, Site
from cell.runtime import engine_files, folder_sizes
from cell.runtime.engine_files import EnginePath, TooDeepError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
UID = 298_900
SECRET = "what only the host may know"
# As deep as a path can be; Python's own walk gives up before.
LEVELS = 2_000


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Layout.make(tmp_path / "cell").site("inst_X", UID)
    made.make(None)
    return made


def seen(folder: Path) -> dict[str, Any]:
    return {
        str(path): (found.st_mode, found.st_uid, found.st_mtime_ns, found.st_size)
        for path in (folder, *folder.rglob("*"))
        for found in [path.lstat()]
    }


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Path]:
    """A folder of the host's, which stays as it is; nothing in it is longer than a secret."""
    made = tmp_path / "host"
    for folder in (made, made / "deep", made / "deep" / "log"):
        folder.mkdir()
        folder.chmod(0o755)
        for name in NAMES:
            (folder / name).write_text(SECRET)
            (folder / name).chmod(0o644)
    before = seen(made)
    yield made
    assert seen(made) == before


# Of files that drivers look for.
NAMES = (
    *("file", data_folder.VERSION, data_folder.LOCK, "postgresql.conf", "standby.signal"),
    *("temp-1", "dump.rdb", "appendonly.aof.1.base.rdb", "multi-master.info", "engine.sock"),
    *("data.db", "tasks.db-wal", "database.duckdb", "trouble", "notice", "pg_upgrade_dump_1.log"),
)


@as_root
def test_a_link_in_the_place_of_a_new_folder_is_not_followed(site: Site, host: Path) -> None:
    (site.run.outside / server.PRIVATE).symlink_to(host)
    engine_files.make_folder(site.run / server.PRIVATE, UID)
    made = (site.run.outside / server.PRIVATE).lstat()
    assert stat.S_ISDIR(made.st_mode)
    assert (stat.S_IMODE(made.st_mode), made.st_uid, made.st_gid) == (0o700, UID, UID)


def test_what_lay_in_the_place_of_a_new_folder_is_gone(site: Site, host: Path) -> None:
    inside = site.run.outside / "own" / "deeper"
    inside.mkdir(parents=True)
    (inside / "link").symlink_to(host)
    (inside / "file").touch()
    os.mkfifo(site.run.outside / "pipe")
    for name in ("own", "pipe"):
        engine_files.make_folder(site.run / name)
        assert engine_files.names(site.run / name) == []


def test_no_place_leads_out_of_its_folder(site: Site, host: Path) -> None:
    for name in ("..", "a/../..", "/etc"):
        with pytest.raises(ValueError, match="outside"):
            site.data / name
    assert not isinstance(site.data, os.PathLike)
    (site.data.outside / "link").symlink_to(host)
    for place in (site.data / "link", site.data / "link" / "deep"):
        with pytest.raises(OSError, match="directory"), engine_files.held(place):
            pass
        assert engine_files.names(place) == []
    assert engine_files.find(site.data / "link" / "file") is None
    assert engine_files.read(site.data / "link" / "file", 100) == b""
    with pytest.raises(OSError, match="directory"):
        engine_files.remove(site.data / "link" / "file")
    with pytest.raises(OSError, match="directory"):
        engine_files.make_file(site.data / "link" / "new")
    with pytest.raises(OSError, match="directory"):
        engine_files.rename(site.data / "link" / "file", site.data / "mine")


def _put(site: Site, source: Path) -> None:
    source.mkdir()
    (source / "new").write_text("ours")
    mysql_files.copy(source, site.data / "db.new")
    mysql_files.settle(site.data / "db.new")
    mysql_files.replace(site.data / "db.new", site.data / "db")


def _copy(site: Site, target: Path) -> None:
    target.mkdir()
    archive.copy(site.data, EnginePath(target), None)


Work = Callable[[Site, Path], object]
# What drivers do below a folder that may be a link, by how it is called and its name.
BELOW: dict[str, tuple[str, Work]] = {
    "resp clears": ("appendonlydir", lambda site, _: resp_files.clear_leftovers(site.data)),
    "resp flushes": ("appendonlydir", lambda site, _: resp_files.flush(site.data)),
    "resp lists": ("appendonlydir", lambda site, _: resp_files.log_files(site.data)),
    "resp copies": ("appendonlydir", lambda site, to: resp_files.copy_log(site.data, to)),
    "mysql copies": ("db", lambda site, to: mysql_files.copy(site.data / "db", to)),
    "mysql fills": ("db.new", _put),
    "mysql drops": ("db", lambda site, _: engine_files.remove(site.data / "db/multi-master.info")),
    "postgres packs": ("global", lambda site, to: archive.pack(site.data, to)),
    "postgres copies": ("base", _copy),
    "postgres reads": (
        upgrade.DETAILS,
        lambda site, _: list(upgrade._details(site.data / upgrade.DETAILS)),
    ),
    "sizes": ("base", lambda site, _: folder_sizes.size_bytes(site.data)),
    "what is taken": ("base", lambda site, _: folder_sizes.taken_bytes(site.directory)),
    "is given": ("base", lambda site, _: engine_files.give(site.data, os.geteuid())),
    "is emptied": ("own", lambda site, _: site.empty_run()),
}


@pytest.mark.parametrize("what", BELOW)
def test_nothing_is_done_below_a_link(what: str, site: Site, host: Path, tmp_path: Path) -> None:
    name, work = BELOW[what]
    for top in (site.data, site.run):
        (top.outside / name).symlink_to(host)
    target = tmp_path / "target"
    before = folder_sizes.size_bytes(EnginePath(host))
    answer: object = ""
    # A refusal is as good; `host` looks whether anything there is another.
    with contextlib.suppress(OSError, EngineError):
        answer = work(site, target)
    assert SECRET not in str(answer)
    assert not isinstance(answer, int) or answer < before
    for path in target.rglob("*") if target.exists() else ():
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


# What drivers do with a file that may be a link, a pipe or a second name of the host's.
FILES: dict[str, tuple[str, Work]] = {
    "postgres' version": (data_folder.VERSION, lambda site, _: data_folder.major(site)),
    "postgres' status": (data_folder.LOCK, lambda site, _: data_folder.takes_logins(site)),
    "postgres' settings": ("postgresql.conf", lambda site, _: data_folder.blank(site, None)),
    "duckdb's notice": ("notice", lambda site, _: duckdb._said(site.data / "notice")),
    "duckdb's database": (
        "database.duckdb",
        lambda site, to: file_snapshots.copy(duckdb._files, site.data, to),
    ),
    "a search engine's database": (
        "data.db",
        lambda site, to: file_snapshots.copy(search._files, site.data, to),
    ),
    "a dump": ("dump.rdb", lambda site, to: resp_files.copy_dump(site.data / "dump.rdb", to)),
    "libraries": (
        "log",
        lambda site, _: functions._leave_out(site.data / "log", threading.Event()),
    ),
    "a cluster's": ("file", lambda site, to: archive.pack(site.data, to)),
    "a cluster's copy": ("file", _copy),
    "a database's": ("ibdata1", lambda site, to: mysql_files.copy(site.data, to)),
    "a given one": ("file", lambda site, _: engine_files.give(site.data, os.geteuid())),
}


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("what", FILES)
def test_no_file_but_the_engines_own_is_touched(
    what: str, kind: str, site: Site, host: Path, tmp_path: Path
) -> None:
    name, work = FILES[what]
    if kind == "link":
        (site.data.outside / name).symlink_to(host / "file")
    else:
        os.mkfifo(site.data.outside / name)
    target = tmp_path / "target"
    with contextlib.suppress(OSError):
        assert SECRET not in str(work(site, target))
    for path in target.rglob("*") if target.exists() else ():
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


@as_root
def test_a_second_name_of_a_file_of_the_hosts_is_not_the_engines(
    site: Site, host: Path, tmp_path: Path
) -> None:
    """Where the kernel lets anybody make one."""
    engine_files.give(site.data, UID)
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    os.link(secret, site.data.outside / "file")
    engine_files.give(site.data, UID + 1)
    assert secret.stat().st_uid == os.geteuid()
    assert engine_files.read(site.data / "file", 100) == b""
    (site.data.outside / "mine").write_text("mine")
    os.chown(site.data.outside / "mine", UID + 1, UID + 1)
    os.link(site.data.outside / "mine", site.data.outside / "again")
    assert engine_files.read(site.data / "again", 100) == b"mine"


def nest(folder: Path, levels: int = LEVELS) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)


def test_folders_without_an_end_are_counted_refused_and_removed(site: Site, tmp_path: Path) -> None:
    nest(site.data.outside)
    assert folder_sizes.size_bytes(site.data) == folder_sizes.UNCOUNTED_BYTES
    assert folder_sizes.taken_bytes(site.directory) == folder_sizes.UNCOUNTED_BYTES
    with pytest.raises(TooDeepError):
        archive.pack(site.data, tmp_path / "target")
    with pytest.raises(TooDeepError):
        mysql_files.copy(site.data, tmp_path / "copy")
    engine_files.remove(site.directory)
    assert not site.directory.exists()


def test_a_folder_in_which_something_is_just_being_made_is_removed(site: Site) -> None:
    """As by a copy that was broken off, whose thread is at its last file."""
    begun, enough = threading.Event(), threading.Event()
    inside = site.data.outside / "base"
    inside.mkdir()

    def make() -> None:
        folder = os.open(inside, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(FileNotFoundError):
            for number in range(100_000):
                os.mkdir(f"d{number}", dir_fd=folder)
                begun.set()
                if enough.is_set():
                    break
        os.close(folder)

    maker = threading.Thread(target=make)
    maker.start()
    begun.wait(10)
    threading.Timer(0.005, enough.set).start()
    engine_files.remove(site.directory)
    maker.join()
    assert not site.directory.exists()


def test_a_tree_is_copied_whole_but_for_what_is_left_out(site: Site, tmp_path: Path) -> None:
    inside = site.data.outside / "base" / "1"
    inside.mkdir(parents=True)
    (inside / "7").write_bytes(b"x" * 70_000)
    (inside / "out").touch()
    target = tmp_path / "target"
    target.mkdir()
    engine_files.copy_tree(site.data, target, lambda path: path == PurePosixPath("base/1/out"))
    assert [path.name for path in target.rglob("*")] == ["base", "1", "7"]
    assert (target / "base" / "1" / "7").read_bytes() == b"x" * 70_000
    assert stat.S_IMODE((target / "base" / "1" / "7").stat().st_mode) == 0o600


def test_what_a_backup_tool_writes_is_no_note_of_a_snapshot(site: Site, host: Path) -> None:
    """It lies beside snapshots, and is the engine's."""
    made = site.snapshots / "snap_X.part"
    made.mkdir()
    os.mkfifo(made / snapshots.NOTE)
    assert snapshots._read(made / snapshots.NOTE) is None
    (made / snapshots.NOTE).unlink()
    (made / snapshots.NOTE).symlink_to(host / "file")
    assert snapshots._read(made / snapshots.NOTE) is None
