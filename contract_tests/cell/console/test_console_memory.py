"""What statements of the console take of the machine's memory, all of them together."""

import concurrent.futures
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from cell.console.table import TOO_MUCH
from cell.runtime.cgroups import CONSOLE_BYTES
from contract_tests.cell.console.test_console import Browser
from contract_tests.cell.rig import LARGER, Rig, running

CROWD = 6
# What a process has taken before it enters the group.
OUTSIDE_BYTES = CROWD * 16 * 2**20
TOO_LATE = "the statement was stopped because it exceeded the console's time limit"
# A row of 300 MB in parts, so that the engine has enough of its own memory for it.
HUGE = "SELECT " + ", ".join(["repeat('x', 50000000)"] * 6)


class Watch:
    """The most that the processes of statements have held at any time."""

    def __init__(self, cell: int) -> None:
        self.most = 0
        self._cell = cell
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(0.005):
            self.most = max(self.most, sum(held_bytes(self._cell)))


def held_bytes(cell: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and is_worker(entry, cell):
                # Its own; what programs share is there once.
                rss, shared = (entry / "statm").read_text().split()[1:3]
                yield (int(rss) - int(shared)) * 4096
        except OSError:
            continue


def is_worker(process: Path, cell: int) -> bool:
    is_one = b"cell.console.worker" in (process / "cmdline").read_bytes()
    return is_one and f"\nPPid:\t{cell}\n" in (process / "status").read_text()


@pytest.mark.nightly
@pytest.mark.parametrize("confine", [True, False])
def test_huge_rows_of_a_crowd_stay_within_what_the_console_has(
    tmp_path: Path, confine: bool
) -> None:
    with running(tmp_path / "cell", confine=confine) as rig:
        engines = {each["engine"]: each for each in rig.get("/v1/cell").json()["engines"]}
        version = engines["postgres"]["versions"][-1]
        crowd = [consoles_of(rig, version, f"crowd-{number}") for number in range(CROWD)]
        other = Browser(rig, rig.make(tenant="other"))
        other.load()
        assert rig.process is not None
        watching = Watch(rig.process.pid)
        with watching as watch, concurrent.futures.ThreadPoolExecutor(CROWD) as pool:
            asked = [pool.submit(each.post, "run", {"sql": HUGE}) for each in crowd]
            beside = []
            while not all(each.done() for each in asked):
                beside.append(other.run("SELECT 42"))
            answers = [each.result().json() for each in asked]
        told = {answer.get("error", TOO_MUCH) for answer in answers}
        # On a machine that is busy with other tests, one may end before it has so much.
        assert told - {TOO_LATE} == {TOO_MUCH}
        assert [answer for answer in beside if answer.get("rows") != [["42"]]] == []
        assert watch.most < CONSOLE_BYTES + OUTSIDE_BYTES


def consoles_of(rig: Rig, version: str, tenant: str) -> Browser:
    made = rig.make(engine="postgres", engine_version=version, tenant=tenant, size=LARGER)
    console = Browser(rig, made)
    console.load()
    return console
