"""Backups of a PostgreSQL beside `pg_basebackup | zstd`, and what they cost those who use it.

A backup and a restore of an instance take turns with those of the server's own tool, on a server
with the same rows and without an instance around it. Queries of the instance itself, and of a
neighbor, are timed before and during backups.
"""

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
AT_LEAST: Final = 0.8
SLOWER_MAX: Final = 2.0
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


class Timed:
    """Queries that are asked all the time, until the end; how long each took, by what went on."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask
        self.now = "quiet"
        self.took: dict[str, list[float]] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._go_on)

    def _go_on(self) -> None:
        while not self._ends.is_set():
            now, began = self.now, time.perf_counter()
            self._ask()
            self.took.setdefault(now, []).append(time.perf_counter() - began)
            time.sleep(PAUSE_S)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ends.set()
            self._thread.join()

    def p99(self, name: str) -> float:
        took = sorted(self.took[name])
        return took[int(len(took) * 0.99)]


def _fill(rig: Rig, instance_id: str) -> None:
    with postgres(rig, instance_id) as connection:
        connection.execute(FILL.encode())
        connection.execute(INDEX.encode())


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
    found: dict[str, Any] = {
        "written": [],
        "verified": [],
        "tool": [],
        "restored": [],
        "unpacked": [],
    }
    with simple_query(rig, "postgres", mine) as own, simple_query(rig, "postgres", other) as beside:
        timed = {"the instance": Timed(own), "a neighbor": Timed(beside)}
        with timed["the instance"].going_on(), timed["a neighbor"].going_on():
            time.sleep(QUIET_S)
            for _ in range(ROUNDS):
                for each in timed.values():
                    each.now = "backup"
                made, written, took = _back_up(rig, mine)
                for each in timed.values():
                    each.now = "between"
                found["written"].append(written)
                found["verified"].append(took)
                found["tool"].append(peer.back_up())
    for _ in range(ROUNDS):
        began = time.perf_counter()
        rig.action(mine, "restore", {"backup_id": made["backup_id"]})
        found["restored"].append(time.perf_counter() - began)
        found["unpacked"].append(peer.restore())
    peer.cluster.stop()
    slower = {name: each.p99("backup") / each.p99("quiet") for name, each in timed.items()}
    quiet = {name: each.p99("quiet") * 1000 for name, each in timed.items()}
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
    for name, ratio in found["slower"].items():
        told = "" if ratio <= SLOWER_MAX else " FAIL"
        holds &= ratio <= SLOWER_MAX
        quiet = f"{found['quiet'][name]:.2f} ms when quiet"
        print(
            f"p99 of queries of {name} during a backup: x {ratio:.2f} ({quiet}), at most 2.0{told}"
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
