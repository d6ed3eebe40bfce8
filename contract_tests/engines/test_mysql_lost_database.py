"""The database that the URI names: there after each start and each rotation."""

import pytest

from contract_tests.engines.conftest import Subject
from contract_tests.engines.mysql_sessions import on_mariadb, session

CHARSETS = """
SELECT DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA
WHERE SCHEMA_NAME = 'app'
"""


def drop(running: Subject) -> None:
    with session(running.site, running.login) as cursor:
        cursor.execute("DROP DATABASE app")


def charsets(running: Subject) -> tuple[str, str]:
    with session(running.site, running.login) as cursor:
        cursor.execute(CHARSETS)
        return tuple(cursor.fetchone())


@on_mariadb
def test_a_dropped_database_is_made_anew(
    running: Subject, capfd: pytest.CaptureFixture[str]
) -> None:
    new = charsets(running)
    drop(running)
    newer = running.new_login()
    running.accept(newer, running.login)
    running.login = newer
    assert charsets(running) == new
    drop(running)
    running.stop()
    running.start()
    assert charsets(running) == new
    # Nothing of what begins a start was refused.
    assert "[ERROR]" not in running.site.log.read_text()


@on_mariadb
def test_a_database_that_is_there_keeps_no_rotation_waiting(running: Subject) -> None:
    newer = running.new_login()
    with session(running.site, running.login) as cursor:
        cursor.execute("CREATE TABLE kept (n INT)")
        cursor.execute("ALTER DATABASE app CHARACTER SET latin1")
        cursor.execute("LOCK TABLES kept WRITE")
        running.accept(newer, running.login)
        cursor.execute("UNLOCK TABLES")
    running.login = newer
    assert charsets(running)[0] == "latin1"
