"""A dump of DuckDB is one file: what was in the log is in it, and no link is followed for that."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import duckdb
import pytest
from ulid import ULID

from cell.engines.driver import EngineError
from cell.engines.duckdb import DATABASE, DuckDB
from cell.layout import Layout, Site
from cell.runtime.host import Host
from contract_tests.engines.conftest import UID

# What ends so leaves its log.
WRITE = """
import duckdb, os, sys
connection = duckdb.connect(sys.argv[1])
connection.sql("PRAGMA disable_checkpoint_on_shutdown")
connection.sql("CREATE TABLE numbers AS SELECT range AS n FROM range(1000)")
os._exit(0)
"""
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def site(host: Host, layout: Layout) -> Site:
    made = layout.site("inst_01JD0000000000000000000DMP", UID + 7)
    made.make(host.owner(made))
    return made


@pytest.fixture
def folder(site: Site) -> Path:
    """A copy of an engine's files, in the instance's folder."""
    made = site.directory / f"dump-{ULID()}"
    made.mkdir(mode=0o700)
    subprocess.run([sys.executable, "-c", WRITE, str(made / DATABASE)], check=True)
    assert (made / f"{DATABASE}.wal").exists()
    return made


def test_what_is_in_the_log_is_in_the_file(host: Host, site: Site, folder: Path, loop: Run) -> None:
    loop(DuckDB(host)._merge(site, folder))
    assert [path.name for path in folder.iterdir()] == [DATABASE]
    with duckdb.connect(str(folder / DATABASE), read_only=True) as connection:
        assert connection.sql("SELECT count(*) FROM numbers").fetchall() == [(1000,)]


def test_a_file_that_was_replaced_by_a_link_is_not_sent(
    host: Host, site: Site, folder: Path, loop: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process of the owner's user could, that came out of SQL."""
    secret = site.directory / "secret"
    secret.write_text("of the cell")

    async def replace(*_of: object, **_more: object) -> bytes:
        await asyncio.sleep(0)
        merged = folder / "merged" / DATABASE
        merged.unlink()
        merged.symlink_to(secret)
        return b""

    monkeypatch.setattr(host, "run", replace)
    with pytest.raises((OSError, EngineError)):
        loop(DuckDB(host)._merge(site, folder))
    assert not (folder / DATABASE).exists()
