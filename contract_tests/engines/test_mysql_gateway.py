"""MariaDB of a real cell through a real gateway, by clients that verify the certificate."""

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymysql
import pytest

from contract_tests.cell.rig import running, until
from contract_tests.engines.gateway_process import GatewayProcess
from contract_tests.engines.mysql_sessions import newest_mariadb

WORK, SLEEP = "SELECT BENCHMARK(1000000000000, SHA2(RAND(), 512))", "SELECT SLEEP(8)"


class Gateway(GatewayProcess):
    def ask(self, host: str, password: str, sql: str, **options: Any) -> list[Any]:
        """PyMySQL, on a socket of ours as the name resolves nowhere."""
        connection = pymysql.connect(
            host=host,
            user="app",
            password=password,
            database="app",
            ssl=ssl.create_default_context(cafile=self.authority),
            autocommit=True,
            defer_connect=True,
            **options,
        )
        connection.connect(socket.create_connection(("127.0.0.1", self.port), 30))
        with connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    version = newest_mariadb()
    with running(tmp_path / "cell") as rig:
        made = Gateway(rig, "mysql")
        try:
            rig.make(engine="mariadb", engine_version=version)
            yield made
        finally:
            made.stop()


def test_clients_reach_their_instance_with_both_passwords(gateway: Gateway) -> None:
    rig = gateway.rig
    (route,) = rig.routes()["instances"].values()
    instance_id = route["instance_id"]
    credentials = [rig.reveal(instance_id)]
    host = credentials[0]["host"]
    gateway.ask(host, credentials[0]["password"], "CREATE TABLE numbers AS SELECT 42 AS n")
    credentials += [rig.rotate(instance_id), rig.rotate(instance_id)]
    for each in credentials:
        assert gateway.ask(host, each["password"], "SELECT n FROM numbers") == [(42,)]
        assert _command_line(gateway, host, each["password"]) == "42\n"
    for username in ("menagerie", "root"):
        with pytest.raises(pymysql.err.MySQLError):
            pymysql.connect(
                unix_socket=route["socket"], user=username, password=credentials[0]["password"]
            )
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        gateway.ask(host, "wrong", "SELECT 1")


@pytest.mark.nightly
def test_a_statement_ends_soon_after_its_client_has_gone(gateway: Gateway) -> None:
    """The server itself would notice only when the statement is done, unless it just sleeps."""
    (route,) = gateway.rig.routes()["instances"].values()
    shown = gateway.rig.reveal(route["instance_id"])
    host, password = shown["host"], shown["password"]

    def working() -> set[str]:
        found = gateway.ask(host, password, "SELECT INFO FROM information_schema.PROCESSLIST")
        return {info for (info,) in found} & {WORK, SLEEP}

    with ThreadPoolExecutor(1) as threads:
        stays = threads.submit(gateway.ask, host, password, SLEEP)
        until(lambda: working() == {SLEEP}, "one client waits")
        with pytest.raises(pymysql.err.OperationalError, match="Lost connection"):
            gateway.ask(host, password, WORK, read_timeout=1)
        until(lambda: WORK not in working(), "the other's statement has ended")
        assert stays.result() == [(0,)]


def _command_line(gateway: Gateway, host: str, password: str) -> str:
    """It sends no server name in TLS, so the user name says which instance is meant."""
    client, sandbox = shutil.which("mariadb"), shutil.which("bwrap")
    if client is None or sandbox is None:
        pytest.skip("mariadb-client or bubblewrap is not installed")
    hosts = gateway.rig.home.parent / "hosts"
    hosts.write_text(f"127.0.0.1 {host}\n")
    done = subprocess.run(
        [
            *(sandbox, "--dev-bind", "/", "/", "--ro-bind", str(hosts), "/etc/hosts"),
            *(client, "--no-defaults", f"--host={host}", f"--port={gateway.port}", "-BN"),
            *(f"--user=app@{host.partition('.')[0]}", f"--ssl-ca={gateway.authority}"),
            *("--ssl-verify-server-cert", "app", "--execute=SELECT n FROM numbers"),
        ],
        env={"MYSQL_PWD": password},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
