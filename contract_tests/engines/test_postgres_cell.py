"""PostgreSQL in a real cell, and through a real gateway by clients that verify the certificate."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from cell.engines.postgres import sources
from contract_tests.cell.rig import GIB, LARGER, SMALL, Rig, running, until

SERVE = Path(__file__).parents[1] / "gateway" / "serve.py"
NEWER, OLDER = "18", "16"
# More than there is room for; each of the last is another.
LOCKS = """
SELECT pg_advisory_lock(floor(random() * 2 ^ 60)::bigint) FROM generate_series(1, 200000)
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    if not {NEWER, OLDER} <= set(sources.best(sources.find())):
        pytest.skip("the wheel with PostgreSQL is not installed")
    with running(tmp_path_factory.mktemp("postgres") / "cell") as made:
        yield made


def order(rig: Rig, version: str = NEWER, **changes: Any) -> str:
    return rig.make(engine="postgres", engine_version=version, **changes)


def ask(rig: Rig, instance_id: str, sql: str, credential: dict[str, Any] | None = None) -> Any:
    """On the socket of the route, as the gateway does; the first value, where there is one."""
    route = rig.route(instance_id)
    assert route is not None
    assert route["protocol"] == "postgres"
    credential = credential or rig.reveal(instance_id)
    with psycopg.connect(
        host=str(Path(route["socket"]).parent),
        user=credential["username"],
        password=credential["password"],
        dbname="app",
    ) as connection:
        found = connection.execute(sql.encode())
        row = found.fetchone() if found.description else None
        return row[0] if row else None


@pytest.mark.nightly
def test_a_life_from_order_to_erasure(rig: Rig) -> None:
    instance_id = order(rig)
    first = rig.reveal(instance_id)
    assert first["username"] == "app"
    assert first["uri"].startswith("postgresql://app:")
    assert first["uri"].endswith("/app?sslmode=verify-full")
    ask(rig, instance_id, "CREATE TABLE numbers AS SELECT 42 AS n")
    second = rig.rotate(instance_id)
    assert second["username"] == "app_2"
    for credential in (first, second):
        assert ask(rig, instance_id, "SELECT n FROM numbers", credential) == 42
    rig.action(instance_id, "resize", {"size": LARGER})
    assert ask(rig, instance_id, "SHOW shared_buffers") == f"{2 * GIB // 4 // 2**20}MB"
    rig.action(instance_id, "pause")
    with pytest.raises(psycopg.OperationalError):
        ask(rig, instance_id, "SELECT 1", second)
    rig.action(instance_id, "resume")
    assert ask(rig, instance_id, "SELECT n FROM numbers", second) == 42
    os.kill(rig.engine_pid(instance_id), signal.SIGKILL)
    until(lambda: rig.observe(instance_id)["restarts"] == 1, "it is started again")
    rig.status_is(instance_id, "running")
    assert ask(rig, instance_id, "SELECT n FROM numbers", first) == 42
    rig.action(instance_id, "erase")
    assert not (rig.home / "instances" / instance_id).exists()


# By day shown of an engine that is quicker, in cell/.
@pytest.mark.nightly
def test_an_engine_that_outlived_its_cell_is_taken_over(rig: Rig) -> None:
    instance_id = order(rig)
    pid, credential = rig.engine_pid(instance_id), rig.reveal(instance_id)
    rig.kill()
    rig.start()
    rig.status_is(instance_id, "running")
    assert rig.engine_pid(instance_id) == pid
    assert ask(rig, instance_id, "SELECT 1", credential) == 1
    assert ask(rig, instance_id, "SELECT 2", rig.rotate(instance_id)) == 2


@pytest.mark.nightly
def test_an_overlap_that_ends_takes_the_login_away(rig: Rig) -> None:
    instance_id = order(rig, rotation_overlap_s=0)
    former = rig.reveal(instance_id)
    new = rig.rotate(instance_id)

    def ended() -> bool:
        try:
            ask(rig, instance_id, "SELECT 1", former)
        except psycopg.OperationalError:
            return True
        return False

    until(ended, "the former login has ended")
    assert ask(rig, instance_id, "SELECT 1", new) == 1


# By day of the driver in test_postgres_exhausted.py, and of the overlap in test_overlaps.py.
@pytest.mark.nightly
def test_a_session_that_uses_up_locks_keeps_no_overlap_going(rig: Rig) -> None:
    instance_id = order(rig, rotation_overlap_s=5)
    former = rig.reveal(instance_id)
    route = rig.route(instance_id)
    assert route is not None
    with psycopg.connect(
        host=str(Path(route["socket"]).parent),
        user=former["username"],
        password=former["password"],
        dbname="app",
        autocommit=True,
    ) as session:
        new = rig.rotate(instance_id)
        for _ in range(3):
            with contextlib.suppress(psycopg.errors.OutOfMemory):
                session.execute(LOCKS)

        def goes_on() -> bool:
            try:
                return session.execute("SELECT 1").fetchone() == (1,)
            except psycopg.OperationalError:
                return False

        until(lambda: not goes_on(), "the session has ended")
    until(lambda: rig.observe(instance_id)["restarts"] == 1, "it is started again")
    seen = rig.status_is(instance_id, "running")
    assert "did not accept new credentials: out of shared memory" in seen["status_reason"]
    assert ask(rig, instance_id, "SELECT 1", new) == 1
    with pytest.raises(psycopg.OperationalError, match="FATAL"):
        ask(rig, instance_id, "SELECT 1", former)


@pytest.mark.nightly
def test_a_newer_version_is_had_with_the_data(rig: Rig) -> None:
    instance_id = order(rig, OLDER)
    ask(rig, instance_id, "CREATE TABLE t AS SELECT generate_series(1, 100) AS n")
    credential = rig.rotate(instance_id)
    host = rig.observe(instance_id)["host"]
    rig.put(instance_id, engine="postgres", engine_version=NEWER, host=host, size=SMALL)
    assert ask(rig, instance_id, "SHOW server_version", credential).startswith(NEWER)
    assert ask(rig, instance_id, "SELECT count(*) FROM t", credential) == 100


@pytest.fixture
def gateway(rig: Rig) -> Iterator[tuple[int, Path]]:
    """The gateway's port and the authority of its certificates."""
    settings = json.dumps({"ports": {"postgres": 0}})
    process = subprocess.Popen(
        [sys.executable, str(SERVE), str(rig.home), settings], stderr=subprocess.DEVNULL
    )
    described = rig.home / "run" / "gateway.json"
    try:
        until(described.exists, "the gateway runs")
        port = json.loads(described.read_bytes())["ports"]["postgres"]
        yield port, rig.home / "pki" / "root.pem"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.nightly
def test_clients_reach_it_through_the_gateway(rig: Rig, gateway: tuple[int, Path]) -> None:
    port, authority = gateway
    instance_id = order(rig)
    rig.rotate(instance_id)
    shown = rig.reveal(instance_id)
    uri = shown["uri"].replace(f":{shown['port']}/", f":{port}/")
    with psycopg.connect(uri, sslrootcert=str(authority), hostaddr="127.0.0.1") as connection:
        connection.execute("CREATE TABLE numbers AS SELECT 42 AS n")
    assert asyncio.run(_asyncpg(shown, port, authority)) == 42
    assert _psql(uri, authority) == "42\n"
    with pytest.raises(psycopg.OperationalError, match="certificate"):
        psycopg.connect(uri, sslrootcert="system", hostaddr="127.0.0.1")


async def _asyncpg(shown: dict[str, Any], port: int, authority: Path) -> int:
    """It has no way to be told the address beside the name, so the name is all it verifies."""
    context = ssl.create_default_context(cafile=str(authority))
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def here(host: Any, *given: Any, **named: Any) -> Any:
        return await resolve("127.0.0.1" if host == shown["host"] else host, *given, **named)

    # Names of localhost resolve nowhere.
    loop.getaddrinfo = here  # type: ignore[method-assign]
    connection = await asyncpg.connect(
        host=shown["host"],
        port=port,
        user=shown["username"],
        password=shown["password"],
        database="app",
        ssl=context,
    )
    try:
        return int(await connection.fetchval("SELECT n FROM numbers"))
    finally:
        await connection.close()


def _psql(uri: str, authority: Path) -> str:
    psql = shutil.which("psql")
    if psql is None:
        pytest.skip("psql is not installed")
    done = subprocess.run(
        [psql, f"{uri}&sslrootcert={authority}&hostaddr=127.0.0.1", "-XAtc", "TABLE numbers"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
