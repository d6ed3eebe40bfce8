"""Holds the recovery of engines with log files to any second: what was acknowledged before it."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from contract_tests.cell.backups.backup_calls import left_beside
from contract_tests.cell.backups.recovering import Archived, at, cell, mysql_session, now
from contract_tests.cell.rig import Rig, until

NIGHTLY = pytest.mark.nightly
ENGINES = ["mariadb", *(pytest.param(each, marks=NIGHTLY) for each in ("valkey", "redis"))]


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ENGINES)
def test_any_second_comes_back(archiving_rig: Rig, engine: str) -> None:
    """Between writes, in an idle stretch, and before another restore."""
    one = Archived.make(archiving_rig, engine=engine)
    rig, instance_id = one.rig, one.instance_id
    one.write(1)
    first = one.base()
    two = one.write(2)
    # Another file begins, in the middle of what is archived.
    one.base()
    three = one.write(3)
    idle = one.archived_until(three)["newest_at"]
    told = one.archiving
    assert (told["status"], told["gap"], len(told["ranges"])) == ("archiving", None, 1)
    one.refused(first, at(time.time() + 60), "can be restored")

    assert one.restored(first, two) == [1, 2]
    until(lambda: one.archiving["needs_base"], "the log is of other data now")
    second = one.base()
    four = one.write(4)
    rig.action(instance_id, "pause")
    # Nothing can change any more, so that the newest moment is now.
    paused = until(lambda: one.archiving["newest_at"] > four and now(), "all is archived")
    assert rig.action(instance_id, "restore", {"backup_id": second, "at": paused})
    rig.action(instance_id, "resume")
    assert one.read() == [1, 2, 4]
    # Before the first restore, where nothing was written after the moment.
    assert one.restored(first, idle) == [1, 2, 3]
    assert left_beside(rig, instance_id) <= {"wal"}
    rig.action(instance_id, "erase")
    assert one.stored == []


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ENGINES)
def test_another_instance_begins_with_a_second(archiving_rig: Rig, engine: str) -> None:
    one = Archived.make(archiving_rig, engine=engine)
    rig = one.rig
    one.write(1)
    base = one.base()
    moment = one.write(2)
    one.archived_until(one.write(3))
    source = {"source_backup": f"{one.instance_id}/{base}", "source_at": moment}
    given = {"engine": engine, "engine_version": one.version}
    other = Archived(rig, one.version, rig.make(**given, **source), engine)
    assert other.read() == [1, 2]
    other.write(9)
    assert (other.read(), one.read()) == ([1, 2, 9], [1, 2, 3])
    rig.action(other.instance_id, "erase")
    rig.action(one.instance_id, "erase")


EVENTS = """
CREATE EVENT plain ON SCHEDULE EVERY 1 DAY DO SELECT 'DISABLE';
CREATE DEFINER = app@'%' EVENT IF NOT EXISTS `off` ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1;
CREATE EVENT later ON SCHEDULE EVERY 1 DAY COMMENT 'DISABLE' DO SELECT 1;
ALTER EVENT later DISABLE;
ALTER EVENT earlier ON SCHEDULE EVERY 2 DAY RENAME TO `re named`;
ALTER EVENT was_on DISABLE;
ALTER EVENT was_off ENABLE;
CREATE EVENT replica ON SCHEDULE EVERY 1 DAY DISABLE ON SLAVE DO SELECT 1
"""
KNOWN = """
CREATE EVENT earlier ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1;
CREATE EVENT was_on ON SCHEDULE EVERY 1 DAY DO SELECT 1;
CREATE EVENT was_off ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1
"""


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_what_runs_by_the_clock_is_on_or_off_as_it_was(archiving_rig: Rig) -> None:
    one = Archived.make(archiving_rig, engine="mariadb")
    mysql(one, KNOWN)
    base = one.base()
    mysql(one, EVENTS)
    mysql(one, "CREATE FUNCTION twice(n INTEGER) RETURNS INTEGER RETURN 2 * n")
    mysql(one, "CREATE TABLE plain (n INTEGER) ENGINE=Aria; INSERT INTO plain VALUES (twice(21))")
    moment = one.write(1)
    before = mysql(one, STATUSES)
    one.archived_until(moment)
    mysql(one, "DROP EVENT plain; DROP FUNCTION twice; DROP TABLE plain")
    assert one.restored(base, moment) == [1]
    assert mysql(one, STATUSES) == before
    assert dict(before)["re named"] == "DISABLED"
    assert mysql(one, "SELECT twice(n) FROM plain") == [(84,)]
    assert mysql(one, "SHOW CREATE FUNCTION twice")[0][0] == "twice"
    one.rig.action(one.instance_id, "erase")


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_rows_that_a_backup_does_not_have_keep_nothing_else_from_coming_back(
    archiving_rig: Rig,
) -> None:
    """Tables of MEMORY are empty in it."""
    one = Archived.make(archiving_rig, engine="mariadb")
    mysql(one, "CREATE TABLE passing (n INTEGER PRIMARY KEY) ENGINE=MEMORY")
    mysql(one, "INSERT INTO passing VALUES (1), (2), (3)")
    base = one.base()
    mysql(one, "UPDATE passing SET n = 7 WHERE n = 1; DELETE FROM passing WHERE n = 2")
    moment = one.write(1, 2)
    one.archived_until(moment)
    assert one.restored(base, moment) == [1, 2]
    told = one.site.log.read_text()
    assert "rows that were to be changed were not there" in told
    one.rig.action(one.instance_id, "erase")


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_a_change_that_cannot_be_applied_is_told_with_its_moment(archiving_rig: Rig) -> None:
    """What names of character sets mean to a session is not in the log."""
    one = Archived.make(archiving_rig, engine="mariadb")
    base = one.base()
    before = one.write(1)
    mysql(one, "SET old_mode = ''; CREATE TABLE faces (a VARCHAR(10) CHARACTER SET utf8)")
    mysql(one, "INSERT INTO faces VALUES ('😀')")
    after = one.write(2)
    one.archived_until(after)
    answer = one.restore(base, after)
    assert answer.status_code == 409, answer.text
    assert "choose an earlier moment, or one after the next backup" in answer.json()["detail"]
    assert one.read() == [1, 2], "the former data"
    assert one.restored(base, before) == [1]
    one.rig.action(one.instance_id, "erase")


STATUSES = "SELECT EVENT_NAME, STATUS FROM information_schema.EVENTS ORDER BY 1"


def mysql(one: Archived, statements: str) -> list[tuple[Any, ...]]:
    """What the last of them answers."""
    with mysql_session(one) as connection:
        cursor = connection.cursor()
        for statement in statements.split(";\n"):
            for each in statement.split("; "):
                cursor.execute(each)
        return list(cursor.fetchall())


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_log_is_given_up_where_the_store_stays_away(tmp_path: Path, engine: str) -> None:
    """The instance works all the time, and its window begins anew once the store is back."""
    store, away = tmp_path / "store", tmp_path / "away"
    store.mkdir()
    given = {"wal_spool_bytes_max": 4 * 2**20, "wal_late_after_s": 2.0}
    with cell(tmp_path, backup_store_url=store.as_uri(), **given) as rig:
        one = Archived.make(rig, engine=engine)
        one.write(1)
        base = one.base()
        known = one.archived_until(one.write(2))["newest_at"]
        store.rename(away)
        one.write(3)
        until(lambda: one.archiving["status"] == "late", "that it is late is told")
        assert "missing" in one.archiving["reason"]
        for start in range(4, 1_000_000, 100_000):
            one.speaker.write(one.site, one.login, range(start, start + 100_000))
        told = until(lambda: one.archiving["gap"], "that the log is given up is told")
        assert "waited" in told["reason"]
        away.rename(store)
        until(lambda: one.archiving["status"] == "archiving", "it is archived again")
        until(lambda: one.archiving["needs_base"], "a new window waits for a backup")
        assert one.restored(base, known) == [1, 2], "what was archived before stays"


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_a_server_without_a_log_is_told_and_has_one_after_a_new_start(archiving_rig: Rig) -> None:
    """Of MariaDB: the other engines always have one."""
    one = Archived.make(archiving_rig, engine="mariadb")
    rig, instance_id = one.rig, one.instance_id
    rig.action(instance_id, "set-archiving", {"wanted": False})
    for action in ("pause", "resume"):
        rig.action(instance_id, action)
    rig.action(instance_id, "set-archiving", {"wanted": True})
    until(lambda: "pause and resume" in (one.archiving["reason"] or ""), "what helps is told")
    for action in ("pause", "resume"):
        rig.action(instance_id, action)
    base = one.base()
    moment = one.write(1)
    one.archived_until(moment)
    assert one.restored(base, moment) == [1]
    rig.action(instance_id, "erase")


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_a_log_that_was_begun_anew_continues_no_chain(archiving_rig: Rig) -> None:
    """Else moments would be told of which the changes are in no archived file."""
    one = Archived.make(archiving_rig, engine="mariadb")
    rig, instance_id = one.rig, one.instance_id
    one.write(1)
    base = one.base()
    known = one.archived_until(one.write(2))["newest_at"]
    rig.action(instance_id, "pause")
    shutil.rmtree(rig.home / "instances" / instance_id / "data" / "binlog")
    rig.action(instance_id, "resume")
    later = one.write(3)
    told = until(lambda: one.archiving["gap"], "that the log was begun anew is told")
    assert "anew" in told["reason"] or "another" in told["reason"]
    one.refused(base, later, "can be restored")
    until(lambda: one.archiving["needs_base"], "a new window waits for a backup")
    assert one.restored(base, known) == [1, 2]
    rig.action(instance_id, "erase")
