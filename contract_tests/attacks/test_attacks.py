"""Every hostile statement of the corpus, said by an owner through the gateway of a real service."""

import contextlib
import itertools
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from contract_tests.attacks.attacker import attack as attack_here
from contract_tests.attacks.statements import Attack, attacks, engines, fill
from contract_tests.attacks.surroundings import CANARY, NEIGHBOUR, Around, Attacker, around
from contract_tests.cell.rig import until
from contract_tests.end_to_end.engine_clients import Place
from contract_tests.end_to_end.installation import Installation, installed, order
from contract_tests.end_to_end.test_engines import Instance, place_of, refuse_missing

ABANDONED_S = 8.0
ANSWERED_S = 60.0
BACK_S = 90.0
PING = {"redis": "PING", "valkey": "PING", "meilisearch": "GET /version"}
# How an owner ends statements whose client is gone: these servers notice that late, or never.
ENDS = {
    "mariadb": "KILL USER app@'%'",
    "mysql": "KILL USER app@'%'",
    "postgres": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'app'",
}
# What the neighbour keeps, and how it asks for it.
KEEP = f"CREATE TABLE kept AS SELECT '{NEIGHBOUR}' AS word"
KEEPS = {
    **dict.fromkeys(("redis", "valkey"), f"SET kept {NEIGHBOUR}"),
    "meilisearch": f'POST /indexes/kept/documents\n\n[{{"id": 1, "word": "{NEIGHBOUR}"}}]',
}
KEPT = {"redis": "GET kept", "valkey": "GET kept", "meilisearch": "GET /indexes/kept/documents"}
OWN = {
    **dict.fromkeys(("redis", "valkey"), "SET own 1"),
    "meilisearch": 'POST /indexes/own/documents\n\n[{"id": 1, "a": "word ab"}]',
}


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with installed(tmp_path_factory.mktemp("attacked")) as made:
        yield made


@pytest.fixture(scope="module")
def near(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Around]:
    with around(tmp_path_factory.mktemp("near"), installation.home) as made:
        yield made


@dataclass
class Duel:
    """An instance whose owner attacks, and a neighbour of the same engine."""

    engine: str
    near: Around
    attacked: Instance
    neighbour: Instance
    attacker: Attacker
    neighbours_place: Place

    def answers(self, within_s: float = BACK_S) -> bool:
        """Whether the owner is answered, on a new connection."""
        statement = PING.get(self.engine, "SELECT 1")

        def asked() -> bool:
            found = self.attacker.attack([statement], ANSWERED_S / 2)
            return found is not None and found["refused"] is None

        try:
            return bool(until(asked, "the owner is answered", within_s))
        except AssertionError:
            return False

    def try_one(self, each: Attack) -> list[str]:
        """What came of it that must not have."""
        steps = [fill(step, self.near.names(self.neighbour.id)) for step in each.steps]
        if each.by == "script":
            steps = [f"EVAL '{step.replace(chr(39), chr(34))}' 0" for step in steps]
        within_s = ABANDONED_S if each.outcome == "bounded" else ANSWERED_S
        found = self.attacker.attack(steps, within_s)
        harm = self.near.harm()
        if found is None and self.engine in ENDS:
            # It ends the connection that says so too.
            self.attacker.attack([ENDS[self.engine]], ANSWERED_S)
        if found is None and each.outcome != "bounded":
            harm.append("it was not answered")
        if found is not None:
            if each.outcome == "refused" and found["refused"] is None:
                harm.append(f"it was not refused: {str(found['told'])[:200]}")
            said = f"{found['told']} {found['refused']}"
            harm += [f"told {leak}" for leak in self.near.leaks(steps, said)]
            if found["refused"]:
                told = self.near.innards(steps, found["refused"])
                harm += [f"told {each} in {found['refused'][:200]}" for each in told]
        if not self.answers():
            harm.append(f"the owner was not answered again within {BACK_S:.0f} s")
        return [f"{each.kind}: {' | '.join(steps)[:200]}: {one}" for one in harm]

    def intact(self) -> list[str]:
        """The neighbour keeps its own, and the cell still has its way into the engine."""
        harm = []
        steps = [KEPT.get(self.engine, "SELECT word FROM kept")]
        found = attack_here(self.engine, self.neighbours_place, steps)
        if found["refused"] or NEIGHBOUR not in str(found["told"]):
            harm.append(f"the neighbour has lost what it kept: {found}")
        former = self.attacker.place
        self.attacker.place = Place(self.attacked.rotate(), former.ca_file)
        if not self.answers():
            harm.append("a new credential does not work")
        return harm


@pytest.fixture
def duel(
    request: pytest.FixtureRequest, installation: Installation, near: Around
) -> Iterator[Duel]:
    engine = request.param
    with installation.api() as api:
        if engine not in {one["id"] for one in api.get("/v1/engines").json()}:
            pytest.skip(f"{engine} is not in the catalogue")
    refuse_missing(installation, engine)
    ours, other = (Instance(installation, order(installation, engine=engine)["id"]) for _ in "ab")
    neighbours = place_of(installation, other.id)
    assert attack_here(engine, neighbours, [KEEPS.get(engine, KEEP)])["refused"] is None
    attacker = Attacker(engine, place_of(installation, ours.id))
    assert attacker.attack([OWN.get(engine, "CREATE TABLE mine (a TEXT)")], 60)
    yield Duel(engine, near, ours, other, attacker, neighbours)
    attacker.end()
    for each in (ours, other):
        with contextlib.suppress(AssertionError):
            each.act("erase", "erased")


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("duel", sorted(engines()), indirect=True)
def test_no_statement_of_the_corpus_does_what_it_must_not(duel: Duel) -> None:
    harm: list[str] = []
    tried = [each for by in ("owner", "script") for each in attacks(duel.engine, by)]
    for _, group in itertools.groupby(tried, key=lambda each: each.kind):
        for each in group:
            harm += duel.try_one(each)
        harm += duel.intact()
    assert harm == []


def test_the_canaries_can_be_reached_at_all(tmp_path: Path) -> None:
    """Else the test above would hold whatever happened."""
    with around(tmp_path, tmp_path / "home") as near:
        assert (near.folder / "canary.csv").read_text() == CANARY
        assert near.harm() == []
        with socket.create_connection(("127.0.0.1", near.port)):
            pass
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.sendto(b"x", ("127.0.0.1", near.udp))
        with socket.socket(socket.AF_UNIX) as unix:
            unix.connect(str(near.folder / "listener"))
        until(lambda: len(near.visits) == 3, "each listener is visited")
        (near.folder / "planted").touch()
        (near.folder / "canary.csv").write_text("x")
        assert len(near.harm()) == 5
        assert near.leaks(["SELECT 1"], f"{CANARY} {near.home}/x") == [CANARY, str(near.home)]
        assert near.innards(["SELECT 1"], "at 0x7ffd12345678 in a.cpp:12") != []
