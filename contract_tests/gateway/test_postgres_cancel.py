"""Cancel requests: on a connection of their own, yet they reach the right session or none."""

import contextlib
import os
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.postgres_clients import (
    Postgres,
    add_postgres,
    asked_for_tls,
    connect,
    dial,
    libpq_environment,
    startup,
)
from contract_tests.gateway.rig import GatewayRig, receive, until
from gateway.cancels import ROWS, BackendSession, Cancels

Connection = psycopg.Connection[tuple[object, ...]]


class Sleeper:
    """A session that sleeps in a thread until somebody cancels it."""

    def __init__(self, connection: Connection, postgres: Postgres) -> None:
        self.connection = connection
        self.cancelled = threading.Event()
        self._thread = threading.Thread(target=self._sleep)
        self._thread.start()
        pid = connection.info.backend_pid
        until(lambda: _sleeps(postgres, pid), "it sleeps")

    def _sleep(self) -> None:
        try:
            self.connection.execute("SELECT pg_sleep(600)")
        except psycopg.errors.QueryCanceled:
            self.cancelled.set()
        except psycopg.Error:
            pass

    def end(self, postgres: Postgres) -> None:
        with postgres.administrator() as administrator:
            administrator.execute(
                "SELECT pg_terminate_backend(%s)", (self.connection.info.backend_pid,)
            )
        self._thread.join(60)


def _sleeps(postgres: Postgres, pid: int) -> bool:
    with postgres.administrator() as administrator:
        found = administrator.execute(
            "SELECT wait_event FROM pg_stat_activity WHERE pid = %s", (pid,)
        ).fetchall()
    return found == [("PgSleep",)]


@contextlib.contextmanager
def sleeping(
    gateway: GatewayRig, host: str, postgres: Postgres, **further: str
) -> Iterator[Sleeper]:
    with connect(gateway, host, **further) as connection:
        sleeper = Sleeper(connection, postgres)
        try:
            yield sleeper
        finally:
            sleeper.end(postgres)


def in_plaintext(connection: Connection) -> None:
    connection.pgconn.get_cancel().cancel()


def over_tls(connection: Connection) -> None:
    connection.cancel_safe(timeout=60)


@pytest.mark.parametrize("version", ["3.0", "3.2"])
@pytest.mark.parametrize("cancel", [in_plaintext, over_tls])
def test_a_cancel_reaches_its_session_and_no_other(
    pg_gateway: GatewayRig, postgres: Postgres, cancel: Callable[[Connection], None], version: str
) -> None:
    name = f"cancel-{cancel.__name__.replace('_', '-')}-{version[-1]}"
    host = add_postgres(pg_gateway, name, postgres)
    with (
        sleeping(pg_gateway, host, postgres, max_protocol_version=version) as other,
        sleeping(pg_gateway, host, postgres, max_protocol_version=version) as meant,
    ):
        cancel(meant.connection)
        assert meant.cancelled.wait(60)
        assert not other.cancelled.wait(0.3)


def test_a_cancel_that_another_worker_gets_arrives(
    make_gateway: MakeGateway, postgres: Postgres
) -> None:
    gateway = make_gateway(workers=3, ports={"https": 0, "postgres": 0})
    host = add_postgres(gateway, "spread", postgres)
    for number in range(12):
        with sleeping(gateway, host, postgres) as sleeper:
            (in_plaintext if number % 2 else over_tls)(sleeper.connection)
            assert sleeper.cancelled.wait(60), number


def test_psql_cancels_on_control_c(pg_gateway: GatewayRig, postgres: Postgres) -> None:
    host = add_postgres(pg_gateway, "control-c", postgres)
    try:
        psql = subprocess.Popen(
            ["psql", "-X", "-c", "SELECT pg_sleep(600)"],
            env=libpq_environment(pg_gateway, host, PGAPPNAME="control c"),
            stderr=subprocess.PIPE,
            text=True,
        )
    except FileNotFoundError:
        pytest.skip("psql is not installed")
    with postgres.administrator() as administrator:
        until(
            lambda: administrator.execute(
                "SELECT FROM pg_stat_activity WHERE application_name = 'control c' "
                "AND wait_event = 'PgSleep'"
            ).fetchall(),
            "psql waits",
        )
    psql.send_signal(signal.SIGINT)
    assert "canceling statement due to user request" in psql.communicate(timeout=60)[1]


def _cancel(pid: int, secret: bytes) -> bytes:
    return struct.pack("!III", 12 + len(secret), 80877102, pid) + secret


def _answers(gateway: GatewayRig, message: bytes, source: str | None = None) -> bytes:
    with dial(gateway, source) as connection:
        connection.sendall(message)
        return connection.recv(100)


def test_a_key_that_is_wrong_is_passed_over_in_silence(
    pg_gateway: GatewayRig, postgres: Postgres
) -> None:
    host = add_postgres(pg_gateway, "wrong-key", postgres)
    with sleeping(pg_gateway, host, postgres) as sleeper:
        pid = sleeper.connection.info.backend_pid
        for secret in (b"abcd", b"x" * 32, b"y" * 256):
            assert _answers(pg_gateway, _cancel(pid, secret)) == b""
        assert not sleeper.cancelled.wait(0.3)


def test_who_is_not_on_the_allow_list_cancels_nothing(
    make_gateway: MakeGateway, postgres: Postgres
) -> None:
    gateway = make_gateway(ports={"https": 0, "postgres": 0})
    host = add_postgres(gateway, "listed", postgres)
    with sleeping(gateway, host, postgres) as sleeper:
        gateway.set_route(host, allow_cidrs=["127.0.0.2/32"])
        until(lambda: gateway.all_know(gateway._version), "the list is in force")
        in_plaintext(sleeper.connection)
        assert not sleeper.cancelled.wait(0.5)
        gateway.set_route(host, allow_cidrs=["127.0.0.1/32"])
        until(lambda: gateway.all_know(gateway._version), "the list is in force")
        in_plaintext(sleeper.connection)
        assert sleeper.cancelled.wait(60)


def test_a_cancel_for_another_host_than_its_sessions_is_passed_over(
    pg_gateway: GatewayRig, postgres: Postgres
) -> None:
    host, other = (add_postgres(pg_gateway, f"place-{each}", postgres) for each in "ab")
    sent = b"SET application_name = 'kept'; SELECT pg_sleep(600)" + b"\0"
    with asked_for_tls(pg_gateway, host) as session:
        session.sendall(startup(user="open", database="postgres"))
        said = b""
        while b"Z\0\0\0\x05" not in said:
            said += receive(session)
        pid, secret = struct.unpack_from("!I4s", said, said.index(b"K\0\0\0\x0c") + 5)
        session.sendall(struct.pack("!cI", b"Q", 4 + len(sent)) + sent)
        until(lambda: _sleeps(postgres, pid), "it sleeps")
        for to in (other, host):
            with asked_for_tls(pg_gateway, to) as canceller:
                canceller.sendall(_cancel(pid, secret))
                assert canceller.recv(100) == b""
            if to == other:
                time.sleep(0.3)
                assert _sleeps(postgres, pid)
        until(lambda: not _sleeps(postgres, pid), "it was cancelled")
    # The session is over, so its key leads nowhere.
    assert _answers(pg_gateway, _cancel(pid, secret)) == b""


sessions = st.builds(
    BackendSession,
    st.text("abc_0", min_size=1, max_size=60),
    st.integers(1, 2**31),
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=5, max_size=256)),
)


@given(st.lists(sessions, max_size=50), st.data())
def test_every_key_leads_to_its_own_session(
    made: list[BackendSession], data: st.DataObject
) -> None:
    cancels = Cancels(workers=2)
    kept = []
    for number, session in enumerate(made):
        cancels.use_column(number % 2)
        secret, row = cancels.add(session)
        assert row is not None
        assert len(secret) == (4 if len(session.secret) == 4 else 32)
        kept.append((session, secret, row))
    gone = data.draw(st.sets(st.sampled_from(range(len(kept))))) if kept else set()
    for number in gone:
        cancels.remove(kept[number][2])
    for number, (session, secret, _) in enumerate(kept):
        assert cancels.find(session.pid, secret) == (None if number in gone else session)
        assert cancels.find(session.pid + 1, secret) is None
        changed = secret[:-1] + bytes((secret[-1] ^ 1,))
        assert cancels.find(session.pid, changed) is None


def test_the_part_of_a_worker_that_died_is_cleared() -> None:
    cancels = Cancels(workers=2)
    session = BackendSession("inst_a", 7, b"abcd")
    child = os.fork()
    if child == 0:
        cancels.use_column(1)
        os._exit(0 if cancels.add(session)[1] is not None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found = [row for row in range(2 * ROWS) if cancels._key(row)]
    assert len(found) == 1
    cancels.clear_column(0)
    assert cancels._key(found[0])
    cancels.clear_column(1)
    assert not cancels._key(found[0])
