"""What the tests of MySQL's family share: sessions on a site's socket, and a server of each."""

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import ER

from cell.engines import PACKAGES, find
from cell.engines.driver import Login
from cell.engines.mysql import administrator as mysql_administrator
from cell.engines.mysql.driver import MySQLFamily
from cell.layout import Site
from cell.runtime.host import Host
from contract_tests.cell.rig import until
from contract_tests.engines.conftest import Subject

on_mariadb = pytest.mark.parametrize("subject", [("mariadb", None)], ids=["mariadb"], indirect=True)


def driver_of(subject: Subject) -> MySQLFamily:
    assert isinstance(subject.driver, MySQLFamily)
    return subject.driver


def let_events_run(subject: Subject) -> None:
    """As a cell does a minute after a start, measuring once a second."""
    driver = driver_of(subject)
    driver.events.held_for_s = 0

    def run() -> bool:
        driver.metrics(subject.site, subject.process)
        return rows(subject, "SELECT @@event_scheduler") == [("ON",)]

    until(run, "events run")


@contextmanager
def session(site: Site, login: Login, **options: Any) -> Iterator[Any]:
    """A cursor on the site's own socket."""
    connection = pymysql.connect(
        unix_socket=str(site.socket),
        user=login.username,
        password=login.password,
        autocommit=True,
        # Else it looks through the machine's authorities, which takes most of the time.
        ssl_disabled=True,
        **{"database": "app", **options},
    )
    with connection, connection.cursor() as cursor:
        yield cursor


def use_up_threads(pid: int, log_in: Callable[[], Any]) -> list[Any]:
    """From now on the server has no thread for a login; the answer are the sessions that it has."""
    status = Path(f"/proc/{pid}/status").read_text()
    uid = int(status.partition("Uid:")[2].split()[0])
    # Its own user may lower it, and root in a container may not.
    words = [shutil.which("prlimit") or "prlimit", f"--pid={pid}", "--nproc=1:1"]
    subprocess.run(words, user=uid, group=uid, extra_groups=[], check=True)
    held = []
    # Threads of former sessions are used first.
    while True:
        try:
            held.append(log_in())
        except pymysql.err.OperationalError as error:
            assert error.args[0] == ER.CANT_CREATE_THREAD  # noqa: PT017 - the last one's
            return held


def rows(subject: Subject, sql: str, login: Login | None = None) -> Sequence[Sequence[Any]]:
    with session(subject.site, login or subject.login) as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def administrator(subject: Subject) -> Login:
    return mysql_administrator.login(subject.host, subject.site)


def newest_mariadb() -> str:
    """What to order from a cell; the test is skipped where there is none."""
    host = Host("/nowhere", "none", PACKAGES, confine=False)
    driver = find(host, ("mariadb",)).drivers.get("mariadb")
    if driver is None:
        pytest.skip("no driver found mariadb on this machine")
    return driver.versions()[0]
