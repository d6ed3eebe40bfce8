"""Fixtures: one cell with a neighbour in it, and an instance of each engine to attack from."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest

from contract_tests.cell.rig import Rig, running
from contract_tests.isolation.attackers import ATTACKERS
from contract_tests.isolation.surroundings import CANARY, Surroundings, listening


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("isolation") / "cell") as made:
        yield made


@pytest.fixture(scope="session")
def around(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    """A file for everybody to read, a listener for everybody to reach, and a neighbour."""
    folder = tmp_path_factory.mktemp("canary")
    (folder / "canary.csv").write_text(CANARY)
    for path in (folder, *folder.parents[:-1]):
        # Nothing but the sandbox may be what keeps an engine out.
        path.chmod(path.stat().st_mode | 0o755)
    folder.chmod(0o777)
    (folder / "canary.csv").chmod(0o666)
    neighbour = rig.make()
    visits: list[str] = []
    with listening(visits) as port:
        yield Surroundings(rig, folder, neighbour, port, visits)


@pytest.fixture(scope="session")
def versions(rig: Rig) -> dict[str, str]:
    """The newest version of each engine that the cell can run."""
    engines = rig.get("/v1/cell").json()["engines"]
    return {each["engine"]: each["versions"][0] for each in engines}


@dataclass
class Attacked:
    """An engine, and an instance of it that its administrator attacks from once."""

    engine: str
    instance_id: str
    around: Surroundings

    @cached_property
    def told(self) -> list[Any]:
        return ATTACKERS[self.engine](self.around, self.instance_id)


@pytest.fixture(scope="session", params=sorted(ATTACKERS))
def attacked(
    request: pytest.FixtureRequest, rig: Rig, versions: dict[str, str], around: Surroundings
) -> Iterator[Attacked]:
    """Running; skipped where this machine cannot run the engine."""
    engine = request.param
    if engine not in versions:
        pytest.skip(f"no driver found {engine} on this machine")
    instance_id = rig.make(engine=engine, engine_version=versions[engine])
    yield Attacked(engine, instance_id, around)
    rig.action(instance_id, "erase")
