"""Where `serve` keeps what it knows in PostgreSQL, and what it says when it cannot."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contract_tests.databases import Databases
from contract_tests.end_to_end.installation import Installation, order
from contract_tests.end_to_end.planted_modules import PlantedModules

ROOT = Path(__file__).resolve().parents[2]
NOBODY = {"MENAGERIE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}


# By day the first start is asked by itself what it says (test_first_start).
@pytest.mark.nightly
@pytest.mark.parametrize("start", ["first", "second"])
def test_a_database_that_cannot_be_reached_is_named(start: str, tmp_path: Path) -> None:
    installation = Installation(tmp_path / "home")
    try:
        if start == "second":
            installation.start()
            installation.stop()
        installation.environment |= NOBODY
        with pytest.raises(AssertionError, match="ended before it was ready"):
            installation.start()
        assert "the database cannot be reached: " in installation.log
        assert "check the setting database_url" in installation.log
        assert "Traceback" not in installation.log
        assert "not ready in time" not in installation.log
        # Neither a part that is only beginning to serve, as its SIGTERM comes.
        assert "did not end in time" not in installation.log
    finally:
        installation.destroy()


@pytest.mark.nightly  # by day the API is under gunicorn (test_malformed_http)
def test_modules_in_the_working_folder_are_not_run(tmp_path: Path) -> None:
    planted = PlantedModules(tmp_path / "planted")
    installation = Installation(tmp_path / "home", working_folder=planted.path)
    try:
        installation.start()
        order(installation, engine="valkey")
        assert planted.run == ""
    finally:
        installation.destroy()


# Asked at the worst moment: when the cell is open, and before its server hears signals.
ASKED_EARLY = """
import os, signal, sys
from cell.agent import Cell
from menagerie import data_plane, keys
from menagerie.settings import load
opened = Cell.open
async def open_and_be_asked(cell):
    await opened(cell)
    os.kill(os.getpid(), signal.SIGTERM)
Cell.open = open_and_be_asked
settings = load(home=sys.argv[1])
keys.make_all(settings.root)
data_plane.run_cell(settings)
"""


@pytest.mark.nightly
def test_a_cell_that_is_asked_to_end_before_it_serves_ends(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ASKED_EARLY, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "cell.stopped" in ended.stdout + ended.stderr


@pytest.mark.nightly  # by day its parts do it on PostgreSQL, each by itself (test_parts)
def test_serve_does_the_work_on_postgresql_too(
    databases: Databases, fresh: Callable[..., Installation]
) -> None:
    installation = fresh(MENAGERIE_DATABASE_URL=databases.empty("postgresql"))
    installation.start()
    assert order(installation, name="worked", size="f0")["status"] == "running"
