"""The cell's database without a byte to spare: 503 for whoever asks, and well again by itself."""

import sqlite3
from pathlib import Path

import pytest

from cell.agent import Cell
from cell.database import Database
from cell.main import make_app
from cell.settings import CellSettings
from cell.specification import Spec
from contract_tests.cell.rig import Rig, new_id, spec
from contract_tests.specserver.calling import call
from specserver import Unavailable

# Needs pages of its own, wherever there is room for a short one.
LONG = 20_000
GIVE = f"INSERT INTO burned VALUES (hex(randomblob({LONG})), 0)"


@pytest.fixture
def full(tmp_path: Path) -> Database:
    database = Database(tmp_path / "cell.db")
    limit(database)
    return database


def limit(database: Database) -> None:
    """From now on SQLite may not enlarge it."""
    (pages,) = database.row("PRAGMA page_count") or (0,)
    database.rows(f"PRAGMA max_page_count = {pages}")


def enlarge(database: Database) -> None:
    database.rows("PRAGMA max_page_count = 100000")


def test_a_write_is_told_to_be_tried_again(full: Database) -> None:
    for write in (full.write, full.note):
        with pytest.raises(Unavailable, match="no space left") as told:
            write(GIVE)
        assert told.value.status == 503
        assert int(told.value.headers["Retry-After"]) > 0
    assert full.row("SELECT count(*) FROM burned") == (0,)
    enlarge(full)
    assert full.write(GIVE) == 1


def test_a_transaction_leaves_nothing_behind(full: Database) -> None:
    def rotate() -> None:
        with full.transaction():
            full.write("INSERT INTO rotated VALUES ('inst_1', 0)")
            full.write(GIVE)

    with pytest.raises(Unavailable, match="no space left"):
        rotate()
    enlarge(full)
    with full.transaction():
        full.write(GIVE)
    assert full.row("SELECT count(*) FROM rotated") == (0,)


def test_whoever_asks_the_cell_is_told_so(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "cell")
    public = rig.key.public_key().public_bytes_raw()
    cell = Cell(CellSettings(rig.home, rig.cell_id, public))
    instance_id = new_id()
    # As one is that was ordered, without its engine.
    cell.lifecycle._find_or_make(instance_id, Spec.parse(spec(instance_id)))
    cell.credentials.make(instance_id, 0)
    path, app = f"/v1/reveal/{rig.token(instance_id, 'reveal')}", make_app(cell)
    cell.database.rows("PRAGMA query_only = ON")
    answer = call(app, "GET", path, headers={})
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable"), answer.text
    assert int(answer.headers["Retry-After"]) > 0
    cell.database.rows("PRAGMA query_only = OFF")
    assert call(app, "GET", path, headers={}).json()["password"], "the URL was not used up"


def test_a_commit_that_fails_is_no_transaction_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "cell.db"
    database = Database(path)
    database.rows("PRAGMA foreign_keys = ON")
    database.write("CREATE TABLE a (id INTEGER PRIMARY KEY)")
    database.write("CREATE TABLE b (a REFERENCES a DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(sqlite3.IntegrityError), database.transaction():
        database.write("INSERT INTO b VALUES (1)")
    with database.transaction():
        database.write("INSERT INTO a VALUES (1)")
    assert database.row("SELECT count(*) FROM b") == (0,)


def test_one_that_may_not_be_written_or_is_locked_is_told_the_same(tmp_path: Path) -> None:
    database = Database(tmp_path / "cell.db")
    database.rows("PRAGMA query_only = ON")
    with pytest.raises(Unavailable, match="cannot be written"):
        database.write(GIVE)
    database.rows("PRAGMA query_only = OFF")
    database.rows("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(tmp_path / "cell.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"), database.transaction():
        pass
    other.close()


def test_a_mistake_in_a_statement_is_no_outage(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        Database(tmp_path / "cell.db").write("DELETE FROM absent")
