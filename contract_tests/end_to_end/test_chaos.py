"""Cell, gateway and engines are killed at random under load: no committed row is lost."""

import contextlib
import random
import threading
import time
from dataclasses import dataclass, field

import psutil
import pytest

from contract_tests.cell.rig import until
from contract_tests.end_to_end.engine_clients import REFUSALS, Place, connect
from contract_tests.end_to_end.installation import Installation, order, reveal
from contract_tests.end_to_end.test_engines import ENGINES
from contract_tests.end_to_end.test_faults import engine_pids

KILLS, KILLS_AT_NIGHT = 8, 40
QUIET_S = 120.0
SEED = 20261121


@dataclass
class Writer:
    """Writes 1, 2, 3, … over connections that break, and remembers which were acknowledged."""

    engine: str
    place: Place
    acknowledged: list[int] = field(default_factory=list)
    breaks: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            try:
                with connect(self.engine, self.place) as session:
                    while not self.stopping.is_set():
                        number += 1
                        session.write([number])
                        self.acknowledged.append(number)
            except REFUSALS:
                self.breaks += 1
                self.stopping.wait(0.1)

    def begin(self) -> None:
        with connect(self.engine, self.place) as session:
            session.make()

    def kept(self) -> list[int]:
        """The rows there are, once the engine answers again."""
        deadline = time.monotonic() + QUIET_S
        while True:
            try:
                with connect(self.engine, self.place) as session:
                    return session.read()
            except REFUSALS:
                assert time.monotonic() < deadline, f"{self.engine} does not answer"
                time.sleep(0.5)


def kill_something(installation: Installation, chance: random.Random, ids: list[str]) -> None:
    victim = chance.choice(["cell", "gateway", *ids])
    if victim in {"cell", "gateway"}:
        # One that was killed a moment ago is not there yet.
        with contextlib.suppress(psutil.Error, AssertionError):
            part = installation.part(victim)
            children = part.children(recursive=True) if victim == "gateway" else []
            for process in [*children, part]:
                process.kill()
        return
    for pid in engine_pids(installation, victim):
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).kill()


@pytest.fixture(scope="module")
def installation(own: Installation) -> Installation:
    """Not the one that all share: its parts are killed."""
    return own


@pytest.mark.timeout(400)
@pytest.mark.nightly
def test_no_acknowledged_row_is_lost(installation: Installation) -> None:
    lose_nothing(installation, KILLS)


@pytest.mark.nightly
def test_no_acknowledged_row_is_lost_to_many_kills(installation: Installation) -> None:
    lose_nothing(installation, KILLS_AT_NIGHT)


def lose_nothing(installation: Installation, kills: int) -> None:
    with installation.api() as api:
        offered = {
            one["id"] for one in api.get("/v1/engines").json() if one["availability"] == "available"
        }
    made = {engine: order(installation, engine=engine) for engine in ENGINES if engine in offered}
    ca_file = installation.endpoints["ca_file"]
    writers = [
        Writer(engine, Place(reveal(installation, one["id"]), ca_file))
        for engine, one in made.items()
    ]
    for writer in writers:
        writer.begin()
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        until(lambda: all(writer.acknowledged for writer in writers), "each engine takes rows")
        chance = random.Random(SEED)
        for _ in range(kills):
            time.sleep(chance.uniform(0.3, 1.5))
            kill_something(installation, chance, [one["id"] for one in made.values()])
        time.sleep(3)
    finally:
        for writer in writers:
            writer.stopping.set()
        for thread in threads:
            thread.join(QUIET_S)
    for writer in writers:
        kept = writer.kept()
        lost = set(writer.acknowledged) - set(kept)
        assert not lost, f"{writer.engine} lost {len(lost)} of {len(writer.acknowledged)} rows"
        assert len(kept) == len(set(kept)), f"{writer.engine} doubled a row"
    assert sum(writer.breaks for writer in writers), "nothing was ever cut"
