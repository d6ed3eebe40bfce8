"""Backups of a PostgreSQL beside `pg_basebackup | zstd`, and what they cost those who use it.

A backup and a restore of an instance take turns with those of the server's own tool, on a server
with the same rows and without an instance around it. Queries of the instance itself, and of a
neighbor, are timed before and during backups.
"""

import contextlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
from rich.console import Console
from rich.table import Table
from ulid import ULID

from cell.backups.writing import LEVEL
from contract_tests.cell.rig import GIB, Rig, until
from contract_tests.databases import Cluster
from contract_tests.isolation.test_neighbour import postgres, simple_query

DATA_BYTES: Final = 2 * GIB
ROUNDS: Final = 2
QUIET_S: Final = 10.0
ANSWERS_WITHIN_S: Final = 600.0
PAUSE_S: Final = 0.002
# The tools of the tests that these processes use cannot be handed to a new interpreter.
_FORKING: Final = multiprocessing.get_context("fork")
AT_LEAST: Final = 0.8
SLOWER_MAX: Final = 2.0
TIMES: Final = ("written", "verified", "tool", "restored", "unpacked")
SIZE: Final = {
    "name": "bench",
    "vcpu": 1.0,
    "memory_bytes": 2 * GIB,
    "storage_bytes": 20 * 10**9,
    "connections_max": 60,
}
# As pgbench fills its accounts, with something to compress.
ROW_BYTES: Final = 128
FILL: Final = f"""
CREATE TABLE accounts AS
SELECT n AS aid, n % 100 AS bid, (n * 7919::bigint) % 100000 AS abalance,
    rpad(md5(n::text), 84, '.') AS filler
FROM generate_series(1, {DATA_BYTES // ROW_BYTES}) n
"""  # noqa: S608 - of the constants above
INDEX: Final = "CREATE INDEX ON accounts (aid)"
# Or the server does so by itself while queries are timed.
VACUUM: Final = "VACUUM (FREEZE, ANALYZE) accounts"
# One in a hundred, which lie beside each other, as those that were written last do.
CHANGE: Final = (
    f"UPDATE accounts SET abalance = abalance + 1 WHERE aid <= {DATA_BYTES // ROW_BYTES // 100}"  # noqa: S608 - as above
)


class Peer:
    """The same rows in a server that nothing is around."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.cluster = Cluster(folder / "pg")
        self.cluster.start()
        with psycopg.connect(
            host=str(folder / "pg"), user="menagerie", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(FILL.encode())
            connection.execute(INDEX.encode())
            connection.execute(VACUUM.encode())
            connection.execute("CHECKPOINT")

    def back_up(self) -> float:
        packed = self._folder / "base.tar.zst"
        tool = self.cluster.program("pg_basebackup")
        words = [tool, "-h", str(self._folder / "pg"), "-U", "menagerie", "-D", "-", "-Ft"]
        words += ["-X", "fetch", "-c", "fast"]
        began = time.perf_counter()
        with packed.open("wb") as file:
            taken = subprocess.Popen(words, stdout=subprocess.PIPE)
            subprocess.run(
                ["zstd", f"-{LEVEL}", "-T1", "-q"], stdin=taken.stdout, stdout=file, check=True
            )
        assert taken.wait() == 0
        subprocess.run(["sync", "-f", str(packed)], check=True)
        return time.perf_counter() - began

    def restore(self) -> float:
        target = self._folder / "restored"
        target.mkdir()
        began = time.perf_counter()
        with (self._folder / "base.tar.zst").open("rb") as file:
            unpacked = subprocess.Popen(["zstd", "-dcq"], stdin=file, stdout=subprocess.PIPE)
            subprocess.run(["tar", "-xC", str(target)], stdin=unpacked.stdout, check=True)
        assert unpacked.wait() == 0
        # As an engine does when it starts; what a power failure takes is not restored.
        subprocess.run(["sync", "-f", str(target)], check=True)
        took = time.perf_counter() - began
        shutil.rmtree(target)
        return took


QUIET, LOADED, BACKUP, PEER, BETWEEN, END = range(6)


class Timed:
    """Queries that a process of its own asks all the time; how long each took, by what went on.

    In threads of one process, each would wait for the others' Python as well.
    """

    def __init__(self, rig: Rig, instance_id: str) -> None:
        self._phase = _FORKING.Value("i", BETWEEN, lock=False)
        self._told: Any = _FORKING.SimpleQueue()
        self._process = _FORKING.Process(target=self._ask, args=(rig, instance_id), daemon=True)
        self._process.start()

    def now(self, phase: int) -> None:
        self._phase.value = phase

    def p99s(self) -> dict[int, float]:
        """By phase, in seconds. Ends it."""
        self.now(END)
        found = self._told.get()
        self._process.join()
        return {phase: sorted(took)[int(len(took) * 0.99)] for phase, took in found.items() if took}

    def _ask(self, rig: Rig, instance_id: str) -> None:
        took: dict[int, list[float]] = {phase: [] for phase in range(END)}
        with simple_query(rig, "postgres", instance_id) as ask:
            while (phase := self._phase.value) != END:
                began = time.perf_counter()
                ask()
                took[phase].append(time.perf_counter() - began)
                time.sleep(PAUSE_S)
        self._told.put(took)


@contextlib.contextmanager
def _loaded() -> Iterator[None]:
    """A loop on each CPU that runs only when nothing else would: what any work beside costs."""

    def run() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while True:
            pass

    loops = [_FORKING.Process(target=run, daemon=True) for _ in range(os.cpu_count() or 1)]
    for loop in loops:
        loop.start()
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()


def _fill(rig: Rig, instance_id: str) -> None:
    with postgres(rig, instance_id) as connection:
        connection.execute(FILL.encode())
        connection.execute(INDEX.encode())
        connection.execute(VACUUM.encode())


def _back_up(
    rig: Rig, instance_id: str, kind: str = "manual"
) -> tuple[dict[str, Any], float, float]:
    """Which; the seconds until all of it is in the store; and until it is verified, too."""
    backup_id, written = f"bkp_{ULID()}", []
    began = time.perf_counter()

    def look() -> None:
        def verifies() -> bool:
            seen = rig.observe(instance_id)["backup"]
            return seen is not None and seen["phase"] == "verifying"

        until(verifies, "the backup is written", 600)
        written.append(time.perf_counter() - began)

    looking = threading.Thread(target=look)
    looking.start()
    made = rig.action(instance_id, "back-up", {"backup_id": backup_id, "kind": kind})
    took = time.perf_counter() - began
    looking.join()
    return made, written[0], took


def _increment(rig: Rig, instance_id: str) -> dict[str, float]:
    """What one takes after a hundredth of the rows changed, as a share of a full backup."""
    full, full_s, _ = _back_up(rig, instance_id, "scheduled")
    with postgres(rig, instance_id) as connection:
        connection.execute(CHANGE.encode())
    made, written_s, _ = _back_up(rig, instance_id, "scheduled")
    assert (full["method"], made["method"]) == ("full", "incremental")
    return {
        "stored": made["stored_bytes"] / full["stored_bytes"],
        "written": written_s / full_s,
    }


def measure(rig: Rig, folder: Path) -> dict[str, Any]:
    version = next(
        each["versions"][0]
        for each in rig.get("/v1/cell").json()["engines"]
        if each["engine"] == "postgres"
    )
    given = {"engine": "postgres", "engine_version": version, "size": SIZE}
    mine, other = rig.make(**given), rig.make(**given)
    _fill(rig, mine)
    peer = Peer(folder)
    found: dict[str, Any] = {name: [] for name in TIMES}
    os.sync()
    timed = {"the instance": Timed(rig, mine), "a neighbor": Timed(rig, other)}

    def enter(phase: int) -> None:
        for each in timed.values():
            each.now(phase)

    enter(QUIET)
    time.sleep(QUIET_S)
    with _loaded():
        enter(LOADED)
        time.sleep(QUIET_S)
    enter(QUIET)
    time.sleep(QUIET_S)
    for _ in range(ROUNDS):
        enter(BACKUP)
        made, written, took = _back_up(rig, mine)
        enter(PEER)
        found["written"].append(written)
        found["verified"].append(took)
        found["tool"].append(peer.back_up())
    enter(BETWEEN)
    p99s = {name: each.p99s() for name, each in timed.items()}
    for _ in range(ROUNDS):
        began = time.perf_counter()
        rig.action(mine, "restore", {"backup_id": made["backup_id"]})
        found["restored"].append(time.perf_counter() - began)
        found["unpacked"].append(peer.restore())
    peer.cluster.stop()
    slower = {
        name: {phase: each[phase] / each[QUIET] for phase in (BACKUP, PEER, LOADED)}
        for name, each in p99s.items()
    }
    quiet = {name: each[QUIET] * 1000 for name, each in p99s.items()}
    best = {name: min(took) for name, took in found.items()}
    return {**best, "slower": slower, "quiet": quiet, "increment": _increment(rig, mine)}


def show(found: dict[str, Any]) -> bool:
    """Whether all bars hold."""
    table = Table(title=f"Backups of a PostgreSQL with {DATA_BYTES >> 30} GiB of rows")
    for name in ("", "seconds", "peer, seconds", "speed, x peer", "at least"):
        table.add_column(name, justify="left" if not name else "right")
    bars = [
        ("backup, written", "written", "tool", AT_LEAST),
        ("backup, written and verified", "verified", "tool", None),
        ("restore in place, engine started", "restored", "unpacked", AT_LEAST),
    ]
    holds = True
    for title, ours, theirs, least in bars:
        ratio = found[theirs] / found[ours]
        verdict = "" if least is None else f"{least}" if ratio >= least else f"{least} FAIL"
        holds &= least is None or ratio >= least
        table.add_row(title, f"{found[ours]:.1f}", f"{found[theirs]:.1f}", f"{ratio:.2f}", verdict)
    console = Console()
    console.print(table)
    for name, ratios in found["slower"].items():
        ratio = ratios[BACKUP]
        told = "" if ratio <= SLOWER_MAX else " FAIL"
        holds &= ratio <= SLOWER_MAX
        quiet = f"{found['quiet'][name]:.2f} ms when quiet"
        print(
            f"p99 of queries of {name} during a backup: x {ratio:.2f} ({quiet}), at most 2.0{told}"
        )
        print(
            f"  during the peer's: x {ratios[PEER]:.2f};"
            f" beside loops of the lowest priority: x {ratios[LOADED]:.2f}"
        )
    shares = found["increment"]
    print(
        "an increment after 1 % of the rows changed, of a full backup: stored bytes"
        f" x {shares['stored']:.3f}, time until it is written x {shares['written']:.2f}"
    )
    print(
        f"The peers are `pg_basebackup -X fetch -c fast | zstd -{LEVEL} -T1` to a file, and\n"
        "unpacking that file until its content is on the disk. The best of two rounds.\n"
        "A backup is also encrypted, and counts once it is verified: read back, restored, and all\n"
        "of it read by an engine."
    )
    return holds


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="bench") as name:
        folder = Path(name)
        folder.chmod(0o755)
        rig = Rig(folder / "cell")
        try:
            rig.start()
            rig.answers_within_s = ANSWERS_WITHIN_S
            return 0 if show(measure(rig, folder)) else 1
        finally:
            rig.destroy()


if __name__ == "__main__":
    sys.exit(main())
