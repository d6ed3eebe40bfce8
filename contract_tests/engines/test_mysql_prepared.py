"""Distributed transactions that a former holder prepared and left keep nobody from anything."""

import pymysql
import pytest

from contract_tests.engines.conftest import Subject
from contract_tests.engines.mysql_sessions import on_mariadb, session

PREPARED = 3


def prepare(subject: Subject, name: str, statement: str) -> None:
    """Each on a connection of its own, which goes away."""
    with session(subject.site, subject.login) as own:
        for step in (f"XA START '{name}'", statement, f"XA END '{name}'", f"XA PREPARE '{name}'"):
            own.execute(step)


# Slow for what it adds by day.
@pytest.mark.nightly
@on_mariadb
def test_prepared_transactions_outlive_and_block_nothing_of_ours(running: Subject) -> None:
    with session(running.site, running.login) as own:
        own.execute("CREATE TABLE t (n INT PRIMARY KEY) ENGINE=InnoDB")
    for number in range(PREPARED):
        prepare(running, f"x{number}", f"INSERT INTO t VALUES ({number})")
    running.login = running.new_login()
    running.accept(running.login)
    folder = running.site.directory / "copied"
    running.run(running.driver.snapshot(running.site, running.process, running.login, folder))
    running.kill()
    running.start()
    running.stop()
    running.start()
    with session(running.site, running.login) as own:
        own.execute("SET SESSION innodb_lock_wait_timeout = 1")
        with pytest.raises(pymysql.OperationalError, match="Lock wait timeout"):
            own.execute("DELETE FROM t WHERE n = 0")
        # What the documentation tells their owner to do.
        own.execute("XA RECOVER FORMAT='SQL'")
        for *_, name in own.fetchall():
            own.execute(f"XA ROLLBACK {name}")
        own.execute("DROP TABLE t")
