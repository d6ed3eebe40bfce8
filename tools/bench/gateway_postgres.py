"""Owns the benchmark of the gateway under PostgreSQL: beside the server's own TLS, and pgbouncer.

One server, reached five ways: its unix socket, its own TLS port, pgbouncer with TLS in front of
the socket (session pooling), and the gateway in front of the socket, with one worker and with two,
as it is installed where there are two CPUs. The bars are held to that one. pgbench drives all of
them from the same cores; rounds are interleaved, so that other load mostly cancels out.
How workers add up cannot be seen where server and pgbench leave them no core of their own. So
each process in front is given the same small share of a CPU (by control groups), and is what
limits; pgbouncer, which uses one CPU, is one such process.
The server and both peers are Debian's; what is not installed is left out, and said.
"""

import contextlib
import datetime as dt
import json
import multiprocessing
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from cell.certificates import pki
from cell.runtime import cgroups
from gateway.main import run as run_gateway
from gateway.settings import GatewaySettings
from tools.bench.ways import RequestPipeline, free_port

HOST = "postgres-bench.local.localhost"
PASSWORD = "bench"  # noqa: S105 - of a server that lives for a minute
UNPRIVILEGED_UID = 65534
ROUNDS = 5
# A few clients wait for one wake-up after the other; many keep both CPUs busy.
CLIENTS, MANY_CLIENTS = 8, 32
SECONDS = 3
SOCKET, OWN_TLS, PGBOUNCER = "unix socket, no TLS", "its own TLS", "pgbouncer, TLS"
ONE_WORKER, TWO_WORKERS = "gateway, 1 worker", "gateway, 2 workers"
WORKER_VCPU = 0.1
WORKER_CLIENTS = 16
QUERIES_MIN, PGBOUNCER_MIN, CONNECTIONS_MIN, WORKERS_MIN = 0.6, 1.1, 0.8, 1.6


@dataclass
class WayToServer(RequestPipeline):
    """`environment` is how pgbench gets there; a way that takes nobody's CPU names no process."""

    environment: dict[str, str]


def installed(name: str) -> str | None:
    """Also where Debian keeps what only its own scripts call."""
    debian = sorted(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")))
    return debian[-1] if debian else shutil.which(name) or shutil.which(name, path="/usr/sbin")


def as_nobody() -> dict[str, Any]:
    """PostgreSQL and pgbouncer refuse to be root."""
    if os.geteuid() != 0:
        return {}
    return {"user": UNPRIVILEGED_UID, "group": UNPRIVILEGED_UID, "extra_groups": [], "cwd": "/"}


@contextlib.contextmanager
def running(command: list[str], log: Path, **options: Any) -> Iterator[psutil.Process]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, **options)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


@contextlib.contextmanager
def server(home: Path, certificates: pki.CertificateFiles) -> Iterator[WayToServer]:
    """The server with a TLS port of its own; yields the way by its socket."""
    program = installed("postgres")
    assert program is not None
    programs = Path(program).parent
    data, port = home / "pg" / "data", free_port()
    (home / "pg").mkdir(mode=0o755)
    certificate, key = home / "pg" / "server.crt", home / "pg" / "server.key"
    shutil.copyfile(certificates.wildcard_pem, certificate)
    shutil.copyfile(certificates.wildcard_key, key)
    key.chmod(0o600)
    if os.geteuid() == 0:
        for path in (home / "pg", certificate, key):
            os.chown(path, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
    initdb = [str(programs / "initdb"), "-D", str(data), "-U", "bench", "-A", "trust", "-N"]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, **as_nobody())
    (data / "pg_hba.conf").write_text(
        "local all bench trust\nlocal all all scram-sha-256\n"
        "hostssl all all 127.0.0.1/32 scram-sha-256\n"
    )
    settings = {
        "port": port,
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": home / "pg",
        "ssl": "on",
        "ssl_cert_file": certificate,
        "ssl_key_file": key,
        "fsync": "off",
        "shared_buffers": "64MB",
    }
    command = [program, "-D", str(data)]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    with running(command, home / "postgres.log", **as_nobody()):
        way = WayToServer(SOCKET, _environment(host=str(home / "pg"), port=port, user="bench"))
        _wait_for(way)
        _run("pgbench", "-i", "-q", "-s", "1", way=way)
        created = (
            f"CREATE ROLE app LOGIN PASSWORD '{PASSWORD}'; "
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO app"
        )
        _run("psql", "-qXc", created, way=way)
        yield WayToServer(SOCKET, way.environment | {"PGUSER": "app", "PGPASSWORD": PASSWORD})


def _environment(
    *, host: str, port: int, user: str = "app", ca: Path | None = None
) -> dict[str, str]:
    found = {"PGHOST": host, "PGPORT": str(port), "PGUSER": user, "PGDATABASE": "postgres"}
    if ca is not None:
        found |= {"PGHOSTADDR": "127.0.0.1", "PGSSLMODE": "verify-full", "PGSSLROOTCERT": str(ca)}
        found |= {"PGPASSWORD": PASSWORD}
    return found


def _run(program: str, *words: str, way: WayToServer) -> str:
    path = installed(program)
    assert path is not None
    done = subprocess.run(
        [path, *words],
        env={"PATH": os.environ["PATH"], **way.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{way.name}: {program} failed: {done.stderr}")
    return done.stdout


def _wait_for(way: WayToServer) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            _run("psql", "-qXc", "SELECT 1", way=way)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


@contextlib.contextmanager
def gateway(
    home: Path, way: WayToServer, certificates: pki.CertificateFiles, workers: int, name: str
) -> Iterator[WayToServer]:
    """A cell's home of its own for each: what is shared is the server alone."""
    own = home / name.replace(" ", "")
    shutil.copytree(certificates.root_pem.parent, own / "pki")
    route = {
        "instance_id": "inst_bench",
        "socket": f"{way.environment['PGHOST']}/.s.PGSQL.{way.environment['PGPORT']}",
        "protocol": "postgres",
        "state": "running",
        "allow_cidrs": ["127.0.0.0/8"],
        "connections_max": 1_000,
    }
    (own / "routes.json").write_text(json.dumps({"version": 1, "instances": {HOST: route}}))
    settings = GatewaySettings(
        own, ports={"postgres": 0}, workers=workers, log_format="json", log_level="error"
    )
    spawning = multiprocessing.get_context("spawn")
    process = spawning.Process(target=run_gateway, args=(settings,))
    process.start()
    try:
        described = own / "run" / "gateway.json"
        while not described.exists():
            time.sleep(0.02)
        told = json.loads(described.read_bytes())
        reached = _environment(host=HOST, port=told["ports"]["postgres"], ca=certificates.root_pem)
        yield WayToServer(name, reached, processes=[psutil.Process(pid) for pid in told["workers"]])
    finally:
        process.terminate()
        process.join(20)


@contextlib.contextmanager
def pgbouncer(
    home: Path, way: WayToServer, certificates: pki.CertificateFiles
) -> Iterator[WayToServer]:
    program = installed("pgbouncer")
    assert program is not None
    port, own = free_port(), home / "pgbouncer"
    own.mkdir()
    users, key = own / "users.txt", own / "server.key"
    users.write_text(f'"app" "{PASSWORD}"\n')
    shutil.copyfile(certificates.wildcard_key, key)
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "scram-sha-256",
        "auth_file": users,
        "pool_mode": "session",
        "client_tls_sslmode": "require",
        "client_tls_cert_file": certificates.wildcard_pem,
        "client_tls_key_file": key,
        "log_connections": 0,
        "log_disconnections": 0,
    }
    server_is = f"host={way.environment['PGHOST']} port={way.environment['PGPORT']}"
    lines = [f"[databases]\n* = {server_is}\n[pgbouncer]"]
    (own / "ini").write_text("\n".join([*lines, *(f"{k} = {v}" for k, v in settings.items()), ""]))
    if os.geteuid() == 0:
        for path in (own, users, key, own / "ini"):
            os.chown(path, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
    with running([program, str(own / "ini")], home / "pgbouncer.log", **as_nobody()) as process:
        reached = _environment(host=HOST, port=port, ca=certificates.root_pem)
        made = WayToServer(PGBOUNCER, reached, processes=[process])
        _wait_for(made)
        yield made


def pgbench(way: WayToServer, *words: str, seconds: int = SECONDS) -> float:
    """Transactions a second."""
    said = _run("pgbench", "-n", "-S", "-T", str(seconds), *words, way=way)
    # The second line counts without connecting, where connecting is not part of it.
    found = re.findall(r"tps = ([0-9.]+)", said)
    return float(found[-1])


def measure(way: WayToServer, *, connections: bool) -> None:
    cpu_s = way.cpu_s()
    per_s = pgbench(way, "-c", str(CLIENTS), "-j", "2")
    way.note("queries_per_s", per_s)
    if way.processes:
        way.note("cpu_us_per_query", (way.cpu_s() - cpu_s) * 1e6 / (per_s * SECONDS))
    many = pgbench(way, "-c", str(MANY_CLIENTS), "-j", "2")
    way.note("queries_per_s_with_many", many)
    if not connections:
        return
    cpu_s = way.cpu_s()
    per_s = pgbench(way, "-C", "-c", "4", "-j", "2")
    way.note("connections_per_s", per_s)
    if way.processes:
        way.note("cpu_us_per_connection", (way.cpu_s() - cpu_s) * 1e6 / (per_s * SECONDS))


def run(rounds: int = ROUNDS) -> dict[str, Any]:
    if not installed("pgbench") or not installed("postgres"):
        return {"skipped": "PostgreSQL's server and pgbench are not installed", "kept": True}
    with tempfile.TemporaryDirectory(prefix="bench") as directory, contextlib.ExitStack() as held:
        groups = cgroups.find(f"bench-{os.getpid()}")
        held.callback(groups.close)
        home = Path(directory)
        home.chmod(0o755)
        made = pki.ensure(home, "local", "localhost", dt.datetime.now(dt.UTC))
        (home / "pki").chmod(0o755)
        direct = held.enter_context(server(home, made))
        port = int(direct.environment["PGPORT"])
        ways = [
            direct,
            WayToServer(OWN_TLS, _environment(host=HOST, port=port, ca=made.root_pem)),
            held.enter_context(gateway(home, direct, made, 1, ONE_WORKER)),
            held.enter_context(gateway(home, direct, made, 2, TWO_WORKERS)),
        ]
        if installed("pgbouncer"):
            ways.append(held.enter_context(pgbouncer(home, direct, made)))
        for way in ways:
            pgbench(way, "-c", "2", seconds=1)  # once to warm up
        order = list(ways)
        for _ in range(rounds):
            for way in order:
                measure(way, connections=way.name != SOCKET)
            order.append(order.pop(0))
        shared = measure_shares(groups, ways[2:], rounds)
    return judge({way.name: way for way in ways}, shared)


def measure_shares(
    groups: cgroups.Groups, ways: list[WayToServer], rounds: int
) -> dict[str, list[float]]:
    """Queries a second, by round, of each way whose processes have the same share of a CPU each.

    Nothing where there are no control groups to be had.
    """
    if not groups.means["cpu"].enforced:
        return {}
    found: dict[str, list[float]] = {way.name: [] for way in ways}
    pids = [str(process.pid) for way in ways for process in way.processes]
    try:
        for pid in pids:
            for entrance in groups.make(pid, 2**31, 1_000):
                entrance.write_text(pid)
            groups.set_cpu(pid, WORKER_VCPU)
        for _ in range(rounds):
            for way in ways:
                found[way.name].append(pgbench(way, "-c", str(WORKER_CLIENTS), "-j", "2"))
    finally:
        for pid in pids:
            groups.set_cpu(pid, None)
    return found


def _ratio(ones: list[float], others: list[float]) -> float:
    """The median of the ratios within each round."""
    return statistics.median(a / b for a, b in zip(ones, others, strict=True))


def judge(ways: dict[str, WayToServer], shared: dict[str, list[float]]) -> dict[str, Any]:
    def ratio(what: str, other: str) -> float:
        return _ratio(ways[TWO_WORKERS].rounds[what], ways[other].rounds[what])

    many = f"queries/s of {MANY_CLIENTS} clients"
    bars = [
        ("queries/s, x its own TLS", ratio("queries_per_s", OWN_TLS), QUERIES_MIN),
        (f"{many}, x its own TLS", ratio("queries_per_s_with_many", OWN_TLS), QUERIES_MIN),
        ("connections/s, x its own TLS", ratio("connections_per_s", OWN_TLS), CONNECTIONS_MIN),
    ]
    if PGBOUNCER in ways:
        bars += [
            ("queries/s, x pgbouncer", ratio("queries_per_s", PGBOUNCER), PGBOUNCER_MIN),
            (f"{many}, x pgbouncer", ratio("queries_per_s_with_many", PGBOUNCER), PGBOUNCER_MIN),
        ]
    for other, least in ((ONE_WORKER, WORKERS_MIN), (PGBOUNCER, PGBOUNCER_MIN)):
        if other in shared:
            found = _ratio(shared[TWO_WORKERS], shared[other])
            bars.append((f"queries/s, x {other}, with equal shares", found, least))
    measured = {name: {what: way.median(what) for what in way.rounds} for name, way in ways.items()}
    kept = all(found >= least for _, found, least in bars)
    return {"measured": measured, "bars": bars, "kept": kept}


def show(result: dict[str, Any]) -> None:
    console = Console()
    if "skipped" in result:
        console.print(f"Gateway in front of PostgreSQL: not measured, because {result['skipped']}.")
        return
    measured = result["measured"]
    table = Table(title="Gateway in front of PostgreSQL (CPU of the proxy alone)")
    table.add_column("")
    for name in measured:
        table.add_column(name, justify="right")
    for what in measured[ONE_WORKER]:
        values = [f"{each[what]:,.0f}" if what in each else "" for each in measured.values()]
        table.add_row(what.replace("_", " "), *values)
    console.print(table)
    for name, found, least in result["bars"]:
        console.print(
            f"{name}: {found:.2f}, at least {least:.1f}{'' if found >= least else ' FAIL'}"
        )
    if not any("shares" in name for name, _, _ in result["bars"]):
        console.print(
            "Control groups are not available, so workers were not compared with equal shares."
        )
    if PGBOUNCER not in measured:
        console.print("pgbouncer is not installed, so it was not measured.")


if __name__ == "__main__":
    outcome = run()
    show(outcome)
    sys.exit(0 if outcome["kept"] else 1)
