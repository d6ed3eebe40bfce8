"""Every engine that can be ordered, through its whole life, by its own client over the gateway."""

from typing import Any

import pytest

from contract_tests import installed
from contract_tests.end_to_end.engine_clients import REFUSALS, Place, connect
from contract_tests.end_to_end.installation import Installation, order, reveal, wait_for

ENGINES = ("duckdb", "postgres", "mariadb", "meilisearch", "mysql", "redis", "valkey")


# By day PostgreSQL lives here, and Valkey in test_lifecycle. The others go through the same, and
# each is held to a driver's promises (engines/test_contract).
BY_DAY = frozenset({"postgres"})


@pytest.fixture(
    params=[
        pytest.param(each, marks=[] if each in BY_DAY else [pytest.mark.nightly])
        for each in ENGINES
    ]
)
def engine(request: pytest.FixtureRequest, installation: Installation) -> str:
    name = str(request.param)
    refuse_missing(installation, name)
    return name


def refuse_missing(installation: Installation, engine: str) -> None:
    """Skips where this machine has no server of the engine, whatever the installation says."""
    with installation.api() as api:
        found = {one["id"]: one for one in api.get("/v1/engines").json()}[engine]
    if found["availability"] == "available":
        return
    reason = installed.lacking(engine)
    assert reason is not None, f"{engine} should run on this machine: {found['reason']}"
    pytest.skip(reason)


def place_of(installation: Installation, instance_id: str) -> Place:
    return Place(reveal(installation, instance_id), installation.endpoints["ca_file"])


def read(engine: str, place: Place) -> list[int]:
    with connect(engine, place) as session:
        return session.read()


def is_refused(engine: str, place: Place) -> bool:
    try:
        read(engine, place)
    except REFUSALS:
        return True
    return False


class Instance:
    """One instance over the API."""

    def __init__(self, installation: Installation, instance_id: str) -> None:
        self.installation = installation
        self.id = instance_id
        self.path = f"/v1/orgs/{installation.endpoints['org_id']}/instances/{instance_id}"

    def act(self, verb: str, status: str) -> None:
        with self.installation.api() as api:
            assert api.post(f"{self.path}/actions/{verb}").status_code == 202
        wait_for(self.installation, self.id, status)

    def post(self, what: str, body: dict[str, Any] | None = None) -> Any:
        with self.installation.api() as api:
            answer = (
                api.post(f"{self.path}/{what}", json=body)
                if body
                else api.post(f"{self.path}/{what}")
            )
        assert answer.is_success, answer.text
        return answer.json()

    def rotate(self) -> dict[str, Any]:
        url = self.post("credentials/rotate")["url"]
        with self.installation.public() as public:
            return dict(public.post(url).json())


@pytest.mark.nightly
def test_an_engine_lives_its_whole_life(installation: Installation, engine: str) -> None:
    instance = Instance(installation, order(installation, engine=engine)["id"])
    place = place_of(installation, instance.id)
    with connect(engine, place) as session:
        session.make()
        session.write([1, 2])
        assert session.read() == [1, 2]

    instance.act("pause", "paused")
    assert is_refused(engine, place)
    instance.act("resume", "running")
    assert read(engine, place) == [1, 2]

    with installation.api() as api:
        assert api.patch(instance.path, json={"size": "s1"}).status_code == 202
    wait_for(installation, instance.id, "running")
    assert read(engine, place) == [1, 2]

    renewed = Place(instance.rotate(), place.ca_file)
    assert renewed.credential["password"] != place.credential["password"]
    for each in (place, renewed):
        assert read(engine, each) == [1, 2]
    wrong = Place({**renewed.credential, "password": "wrong"}, place.ca_file)
    assert is_refused(engine, wrong)

    branch = Instance(installation, instance.post("branches", {"name": f"{engine}-try"})["id"])
    wait_for(installation, branch.id, "running")
    copy = place_of(installation, branch.id)
    with connect(engine, copy) as session:
        session.write([3])
        assert session.read() == [1, 2, 3]
    for former in (place, renewed):
        stolen = {**former.credential, "host": copy.host}
        assert is_refused(engine, Place(stolen, place.ca_file))
    assert read(engine, renewed) == [1, 2]

    with installation.api() as api:
        assert api.delete(instance.path).status_code == 202
    wait_for(installation, instance.id, "deleted")
    assert is_refused(engine, renewed)
    instance.act("undelete", "running")
    assert read(engine, renewed) == [1, 2]

    for gone in (instance, branch):
        gone.act("erase", "erased")
    assert is_refused(engine, renewed)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.nightly
def test_a_newer_version_keeps_the_rows(installation: Installation, engine: str) -> None:
    refuse_missing(installation, engine)
    with installation.api() as api:
        offered = {one["id"]: one["versions"] for one in api.get("/v1/engines").json()}[engine]
    if len(offered) == 1:
        pytest.skip(f"only {engine} {offered[0]} runs here")
    older, newest = offered[-1], offered[0]
    made = order(installation, engine=engine, engine_version=older)
    instance = Instance(installation, made["id"])
    place = place_of(installation, instance.id)
    with connect(engine, place) as session:
        session.make()
        session.write(range(100))
    with installation.api() as api:
        asked = api.patch(instance.path, json={"engine_version": newest})
        assert asked.status_code == 202, asked.text
    changed = wait_for(installation, instance.id, "running")
    assert changed["engine_version"] == newest, changed["status_reason"]
    assert read(engine, place) == list(range(100))
    with installation.api() as api:
        back = api.patch(instance.path, json={"engine_version": older})
        assert back.status_code == 422
    instance.act("erase", "erased")


# By day one of DuckDB is woken (test_lifecycle), and the gateway wakes by every protocol.
@pytest.mark.nightly
def test_a_connection_wakes_an_instance_of_every_engine(fresh: Any) -> None:
    installation: Installation = fresh(
        MENAGERIE_IDLE_PAUSE_S="3",
        MENAGERIE_FIRST_ORG_PLAN="free",
        MENAGERIE_ORGS_PER_USER="20",
        MENAGERIE_FREE_ORGS_PER_USER="20",
    )
    installation.start()
    asleep: dict[str, tuple[Place, str]] = {}
    with installation.api(session=True) as api:
        available = [
            one["id"]
            for one in api.get("/v1/engines").json()
            if one["availability"] == "available" and one["id"] in ENGINES
        ]
        for engine in available:
            # The free plan allows two instances, so each engine has an organization of its own.
            org = api.post("/v1/orgs", json={"name": f"Org of {engine}"}).json()["id"]
            project = api.post(f"/v1/orgs/{org}/projects", json={"name": "p"}).json()["id"]
            made = api.post(
                f"/v1/orgs/{org}/projects/{project}/instances",
                json={"engine": engine, "size": "f0"},
            ).json()
            path = f"/v1/orgs/{org}/instances/{made['id']}"
            begun = api.get(path, params={"wait_for": "running", "timeout_s": 60}).json()
            # Where the machine stalls it is asleep again before we look.
            assert begun["status"] in {"running", "paused"}, begun
            url = api.post(f"{path}/credentials/reveal").json()["url"]
            with installation.public() as public:
                place = Place(public.get(url).json(), installation.endpoints["ca_file"])
            with connect(engine, place) as session:
                session.make()
                session.write([7])
            asleep[engine] = (place, path)
        for engine, (place, path) in asleep.items():
            paused = api.get(path, params={"wait_for": "paused", "timeout_s": 60}).json()
            assert (paused["status"], paused["paused_by"]) == ("paused", "idle"), engine
            assert read(engine, place) == [7], engine
