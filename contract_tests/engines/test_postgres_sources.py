"""Where PostgreSQL is found, and the template that every instance of a cell is a copy of."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from ulid import ULID

from cell.engines import PACKAGES
from cell.engines.postgres import PostgreSQL, sources
from cell.engines.postgres.configuration import POSTGRES, TIMESCALEDB
from cell.engines.postgres.installation import Installations
from cell.engines.postgres.sources import Source
from cell.layout import Layout
from cell.runtime.host import Host
from contract_tests.engines.conftest import UID


def made_up(tmp_path: Path, version: str, *extensions: str) -> Source:
    folder = tmp_path / f"{version}-{len(list(tmp_path.iterdir()))}"
    (folder / "share" / "extension").mkdir(parents=True)
    for name in extensions:
        (folder / "share" / "extension" / f"{name}.control").write_text("relocatable = true\n")
    return Source("made up", version, folder / "bin", folder / "share", folder / "lib")


def test_the_best_of_each_major_version_is_offered(tmp_path: Path, host: Host) -> None:
    found = [
        made_up(tmp_path, "16.9", "vector"),
        made_up(tmp_path, "16.10"),
        made_up(tmp_path, "18.1"),
        made_up(tmp_path, "18.1", "vector"),
        made_up(tmp_path, "15.20"),
    ]
    best = sources.best(found)
    assert [(major, each.version) for major, each in best.items()] == [
        ("18", "18.1"),
        ("16", "16.10"),
        ("15", "15.20"),
    ]
    assert best["18"].has("vector")
    assert PostgreSQL(host, found=found).versions() == ("18", "16", "15")


def test_timescaledb_is_where_its_extension_is(tmp_path: Path, host: Host) -> None:
    found = [made_up(tmp_path, "18.1"), made_up(tmp_path, "16.10", "timescaledb")]
    driver = PostgreSQL(host, TIMESCALEDB, found)
    assert (driver.engine, driver.versions()) == ("timescaledb", ("16",))
    assert "16.10 from made up" in driver.source
    assert PostgreSQL(host, TIMESCALEDB, found[:1]).versions() == ()


def test_what_is_no_postgresql_is_passed_over(tmp_path: Path) -> None:
    assert sources.describe("x", tmp_path) is None
    for words in (
        "exit 1",
        "echo 'postgres (PostgreSQL) 9.6'",
        "echo 'postgres (PostgreSQL) 14.2'",
    ):
        program = tmp_path / "postgres"
        program.write_text(f"#!/bin/sh\n{words}\n")
        program.chmod(0o755)
        os.utime(program, ns=(0, hash(words) % 10**9))
        assert sources.describe("x", tmp_path) is None


@pytest.mark.nightly
def test_two_at_once_make_one_template(
    tmp_path: Path, loop: Callable[[Coroutine[Any, Any, Any]], Any]
) -> None:
    found = sources.best(sources.find())
    if not found:
        pytest.skip("no PostgreSQL on this machine")
    source = next(iter(found.values()))
    tmp_path.chmod(0o711)
    layout = Layout.make(tmp_path / "cell")
    host = Host(str(layout.home), f"test-template-{os.getpid()}", PACKAGES, key=os.urandom(32))
    if host.runs_as_root:
        pytest.skip("engines have no uid of their own here")
    # What an attempt left that was killed is nobody's.
    left = layout.home / "engines" / "postgres" / "making-cluster"
    left.mkdir(parents=True)
    (left / "half").write_text("x")
    sites = [layout.site(f"inst_{ULID()}", UID + number) for number in range(2)]
    for site in sites:
        site.make(host.owner(site))

    async def both() -> list[Any]:
        makers = [Installations(host, POSTGRES) for _ in sites]
        pairs = zip(makers, sites, strict=True)
        return await asyncio.gather(*(maker.ensure(source, site) for maker, site in pairs))

    one, other = loop(both())
    assert one == other
    folder = layout.home / "engines" / "postgres"
    assert (one.template / "cluster.tar").exists()
    assert not list(folder.glob("making-*"))
    assert source.version in one.folder.name
    # The source's own files are as they were.
    control = source.share / "extension" / "vector.control"
    if control.exists():
        assert "trusted" not in control.read_text()
    host.close()
