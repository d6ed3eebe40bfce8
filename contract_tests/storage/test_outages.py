"""Databases that restart, fill up or go: what was acknowledged stays, and service comes back."""

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url, select, text

from contract_tests.databases import Cluster, Databases
from storage import identifiers
from storage.access import organizations
from storage.access.organizations import Organization
from storage.database import Database
from storage.errors import StorageUnavailable

TMPFS_MIB = 8


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server with the durability of production, that a test may break."""
    with tempfile.TemporaryDirectory(prefix="menagerie-cluster-") as directory:
        Path(directory).chmod(0o755)
        made = Cluster(Path(directory) / "c", settings=())
        made.start()
        yield made
        made.stop(signal.SIGQUIT)


@pytest.mark.nightly
def test_postgresql_restarted_under_load_loses_nothing_acknowledged(cluster: Cluster) -> None:
    """Stopped in order, as by a crash, and in order again, while four threads write (37)."""
    database = Database(cluster.migrated_database())
    acknowledged: list[str] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            try:
                with database.write() as db:
                    slug = identifiers.new("org").lower()
                    organizations.create(db, name="Org", slug=slug)
            except StorageUnavailable:
                stop.wait(0.02)
            else:
                acknowledged.append(slug)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGINT):
        before = len(acknowledged)
        until(lambda before=before: len(acknowledged) > before + 50)  # type: ignore[misc]
        cluster.stop(how)
        cluster.start()
    before = len(acknowledged)
    until(lambda: len(acknowledged) > before + 50)
    stop.set()
    for thread in threads:
        thread.join(30)
    with database.read() as db:
        assert set(acknowledged) <= set(db.scalars(select(Organization.slug)))
    database.dispose()


@pytest.mark.nightly
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_no_connection_that_rested_through_a_restart_is_handed_out(
    cluster: Cluster, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.database.PING_AFTER_S", 0)
    database = Database(cluster.empty_database())
    with database.read() as db, database.read() as other:
        assert (db.scalar(text("SELECT 1")), other.scalar(text("SELECT 1"))) == (1, 1)
    cluster.stop(how)
    cluster.start()
    with database.read() as db, database.read() as other:
        assert (db.scalar(text("SELECT 1")), other.scalar(text("SELECT 1"))) == (1, 1)
    database.dispose()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a small file system can only be mounted by root")
    with tempfile.TemporaryDirectory(prefix="menagerie-disk-") as directory:
        options = ["-t", "tmpfs", "-o", f"size={TMPFS_MIB}m", "menagerie-tests", directory]
        mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
        try:
            yield Path(directory)
        finally:
            subprocess.run(["umount", "--lazy", directory], check=True)


def test_a_full_disk_refuses_writes_corrupts_nothing_and_heals(
    small_disk: Path, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small_disk / "menagerie.db"
    path.write_bytes(Path(databases.migrated("sqlite").removeprefix("sqlite:///")).read_bytes())
    database = Database(f"sqlite:///{path}")
    written = [_fill(database)]
    filler = small_disk / "filler"
    _occupy(filler)

    def fill() -> None:
        for _ in range(TMPFS_MIB * 1024):
            written.append(_fill(database))  # noqa: PERF401 - what was written counts when it fails

    assert "MiB are free" in str(database.lacks_space())
    monkeypatch.setattr("storage.database.FREE_MIN_BYTES", 0)
    assert database.lacks_space() is None
    with pytest.raises(StorageUnavailable, match="no space left"):
        fill()
    assert "a write failed" in str(database.lacks_space())
    with database.read() as db:
        assert set(db.scalars(select(Organization.slug))) == set(written)
        assert db.execute(text("PRAGMA integrity_check")).scalar_one() == "ok"
    filler.unlink()
    written.append(_fill(database))
    monkeypatch.setattr("storage.database.FULL_FOR_S", 0)
    assert database.lacks_space() is None
    with database.read() as db:
        assert set(db.scalars(select(Organization.slug))) == set(written)
    database.dispose()


def _fill(database: Database) -> str:
    with database.write() as db:
        slug = identifiers.new("org").lower()
        organizations.create(db, name="x" * 10_000, slug=slug)
    return slug


def _occupy(filler: Path) -> None:
    """Take almost all the space that is left."""
    space = os.statvfs(filler.parent)
    filler.write_bytes(bytes(max(space.f_bavail * space.f_frsize - 200_000, 0)))


def until(holds: Callable[[], bool], deadline_s: float = 60) -> None:
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def test_a_postgresql_that_takes_no_writes_is_an_outage(databases: Databases) -> None:
    """As a standby, or one whose provider has made it so while its disk is full."""
    url = databases.migrated("postgresql")
    name = make_url(url).database
    plain = url.replace("postgresql+psycopg", "postgresql")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        database = Database(url)
        try:
            with (
                pytest.raises(StorageUnavailable, match="accepts no writes"),
                database.write() as db,
            ):
                organizations.create(db, name="Org", slug=identifiers.new("org").lower())
            with database.read() as db:
                assert db.scalars(select(Organization)).all() == []
        finally:
            database.dispose()
            connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    databases.give_back(url)
