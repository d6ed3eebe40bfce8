"""A rotation without an overlap: who had a former credential is out when it returns."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import redis

from cell.access.credentials import Credentials
from cell.database import Database
from cell.engines.driver import Login
from cell.instances.hosted import HostedInstance
from cell.instances.records import InstanceRecord
from cell.instances.supervisor import Supervisor, login_of
from cell.layout import Layout
from cell.sealing import Sealer
from cell.settings import CellSettings
from contract_tests.engines.conftest import SUBJECTS, Subject
from contract_tests.engines.speakers import ONCE

# What an engine says of a session that has ended.
OVER = (psycopg.Error, pymysql.Error, redis.RedisError, OSError)
GoesOn = Callable[[], bool]


@contextlib.contextmanager
def _session(subject: Subject, login: Login) -> Iterator[GoesOn]:
    """One that stays open, and whether it is answered; DuckDB has a login for each request."""
    given: dict[str, Any] = {"user": login.username, "password": login.password}
    with contextlib.ExitStack() as stack:

        def ask() -> object:
            return subject.speaker.read(subject.site, login)

        if subject.driver.protocol == "postgres":
            opened = psycopg.connect(host=str(subject.site.run), dbname="app", **given)
            stack.callback(opened.close)

            def ask() -> object:
                return opened.execute("SELECT 1")

        elif subject.driver.protocol == "mysql":
            spoken = pymysql.connect(
                unix_socket=str(subject.site.socket), ssl_disabled=True, **given
            )
            stack.callback(lambda: spoken.open and spoken.close())

            def ask() -> object:
                return spoken.query("SELECT 1")

        elif subject.driver.protocol == "resp":
            client = redis.Redis(
                unix_socket_path=str(subject.site.socket),
                username=login.username,
                password=login.password,
                single_connection_client=True,
                retry=ONCE,
            )
            stack.callback(client.close)

            def ask() -> object:
                return client.ping()

        def goes_on() -> bool:
            try:
                ask()
            except (*OVER, AssertionError):
                return False
            return True

        assert goes_on()
        yield goes_on


@pytest.mark.parametrize("subject", SUBJECTS, indirect=True)
def test_all_former_credentials_and_their_sessions_end_at_once(
    running: Subject, layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that was in the overlap of a rotation before this one."""
    credentials = Credentials(Database(tmp_path / "cell.db"), Sealer(os.urandom(32), "credentials"))
    nothing: Any = None
    settings = CellSettings(tmp_path, "cell_x", b"")
    supervisor = Supervisor(settings, layout, running.host, nothing, credentials, *[nothing] * 3)
    monkeypatch.setattr(supervisor, "publish", lambda: None)
    site = running.site
    record = InstanceRecord(site.instance_id, site.uid, running.spec, "running", None, 0.0)
    instance = HostedInstance(record, site, running.driver)
    assert running.process is not None
    instance.engine_started(running.process)
    instance.became_usable(0)

    def rotate(overlap_s: float) -> Login:
        made = credentials.make(instance.instance_id, overlap_s)
        running.run(supervisor.hand_out_credentials(instance))
        return login_of(running.driver, made)

    first = rotate(86_400)
    running.speaker.make(site, first)
    second = rotate(86_400)
    with _session(running, first) as older, _session(running, second) as newer:
        third = rotate(0)
        assert not older()
        assert not newer()
    assert not running.works(first)
    assert not running.works(second)
    assert running.works(third)
