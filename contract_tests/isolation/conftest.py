"""Fixtures: one cell with a neighbour in it, and an instance of each engine to attack from."""

from collections.abc import Iterator

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


@pytest.fixture(params=sorted(ATTACKERS))
def instance(
    request: pytest.FixtureRequest, rig: Rig, versions: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """An engine, and a running instance of it; skipped where this machine cannot run it."""
    engine = request.param
    if engine not in versions:
        pytest.skip(f"no driver found {engine} on this machine")
    instance_id = rig.make(engine=engine, engine_version=versions[engine])
    yield engine, instance_id
    rig.action(instance_id, "erase")
