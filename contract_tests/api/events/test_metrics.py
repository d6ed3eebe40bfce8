"""Metrics of an organization: what Prometheus scrapes, by its own parsers."""

from datetime import timedelta
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from sqlalchemy import update

from contract_tests.api.access.team_helpers import in_team, team
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from handlers.events import exposition, metrics
from handlers.events.metric_families import FAMILIES
from storage.access.projects import Project
from storage.instances import instances, readings
from storage.instances.instances import Instance

Samples = dict[tuple[str, str], list[tuple[dict[str, str], float]]]
HOSTILE = 'a "quoted" \\ name\nwith\u2028lines\r, {braces="1"} and ünïcode 🗄'


def scrape(house: House, tenant: Tenant, key: str = "", accept: str = "*/*") -> str:
    answer = house.get(f"{tenant.path}/metrics", key or tenant.key, headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    return str(answer.text)


def parsed(text: str) -> dict[str, dict[str, list[Any]]]:
    """By the name of a family, the samples of each instance."""
    found: dict[str, dict[str, list[Any]]] = {}
    for family in open_metrics(text):
        of = found.setdefault(family.name, {})
        for sample in family.samples:
            of.setdefault(sample.labels["instance_id"], []).append(sample)
    return found


def value(text: str, name: str, instance_id: str) -> float | None:
    samples = parsed(text)[f"menagerie_instance_{name}"].get(instance_id, [])
    assert len(samples) <= 1
    return float(samples[0].value) if samples else None


def tell(house: House, instance_id: str, **told: Any) -> None:
    """What its cell says of the instance."""
    with house.database.write() as db:
        instance = db.get(Instance, instance_id)
        assert instance is not None
        usual = {"status": "running", "connections": 2, "memory_bytes": 3, "storage_bytes": 4}
        readings.note(db, instance, usual | told, house.database.now(db))


def change(house: House, record: Any, record_id: str, **columns: Any) -> None:
    with house.database.write() as db:
        db.execute(update(record).where(record.id == record_id).values(columns))


def test_nothing_to_tell_is_every_family_without_samples(house: House) -> None:
    text = scrape(house, house.tenant())
    assert {family.name for family in open_metrics(text)} == {each.naming.name for each in FAMILIES}
    assert not any(family.samples for family in open_metrics(text))


def test_a_new_instance_is_not_down_before_its_cell_was_asked(house: House) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    assert value(scrape(house, tenant), "up", instance_id) is None
    tell(house, instance_id)
    assert value(scrape(house, tenant), "up", instance_id) == 1
    other_id = house.instance(tenant)
    with house.database.read() as db:
        earlier = house.database.now(db) - timedelta(minutes=4)
    change(house, Instance, other_id, ready_at=earlier)
    assert value(scrape(house, tenant), "up", other_id) == 0
    paused_id = house.instance(tenant)
    change(house, Instance, paused_id, status="paused")
    assert value(scrape(house, tenant), "up", paused_id) == 0


def test_the_figures_of_an_instance_are_told(house: House) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant, name="sales")
    tell(house, instance_id, cpu_s=1.5, restarts=1, statements=7)
    tell(house, instance_id, cpu_s=0.5, restarts=1, statements=3)
    text = scrape(house, tenant)
    told = {
        name: value(text, name, instance_id)
        for name in ("up", "cpu_seconds", "memory_bytes", "storage_bytes", "connections")
    }
    assert told == {
        "up": 1,
        "cpu_seconds": 2.0,
        "memory_bytes": 3,
        "storage_bytes": 4,
        "connections": 2,
    }
    # A counter goes on where the engine's own began anew.
    assert value(text, "queries", instance_id) == 10
    assert value(text, "restarts", instance_id) == 1
    assert value(text, "transactions", instance_id) is None
    assert value(text, "connections_limit", instance_id) == 20
    (info,) = parsed(text)["menagerie_instance"][instance_id]
    assert (info.labels["name"], info.labels["engine"]) == ("sales", "duckdb")
    (status,) = parsed(text)["menagerie_instance_status"][instance_id]
    assert status.labels["status"] == "running"


def test_one_whose_cell_is_silent_is_not_up_and_uses_nothing_known(house: House) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    assert value(scrape(house, tenant), "up", instance_id) is None
    tell(house, instance_id)
    house.pass_time(170)
    assert value(scrape(house, tenant), "up", instance_id) == 1
    house.pass_time(20)
    text = scrape(house, tenant)
    assert value(text, "up", instance_id) == 0
    assert value(text, "memory_bytes", instance_id) is None
    assert value(text, "last_reading_timestamp_seconds", instance_id) is not None
    assert value(text, "memory_limit_bytes", instance_id) == 2**29


@pytest.mark.parametrize("accept", ["text/plain;version=0.0.4", "application/openmetrics-text"])
def test_hostile_names_stay_labels(house: House, accept: str) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    change(house, Instance, instance_id, name=HOSTILE)
    text = scrape(house, tenant, accept=accept)
    parse = open_metrics if "openmetrics" in accept else prometheus
    found = [
        sample
        for family in parse(text)
        for sample in family.samples
        if sample.name == "menagerie_instance_info"
    ]
    (info,) = found
    assert info.labels["name"] == HOSTILE
    assert all("\n" not in line for line in text.split("\n"))


def test_the_client_chooses_the_format(house: House) -> None:
    tenant = house.tenant()
    asked = (
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
        "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
    )
    for accept, form in (
        (asked, exposition.OPEN_METRICS),
        ("*/*", exposition.OPEN_METRICS),
        ("text/*", exposition.PROMETHEUS),
        ("text/plain;version=0.0.4;q=1,*/*;q=0.1", exposition.PROMETHEUS),
    ):
        answer = house.get(f"{tenant.path}/metrics", tenant.key, headers={"Accept": accept})
        assert answer.headers["content-type"] == form.media_type, accept
        assert answer.text.endswith("# EOF\n") == form.is_open
    refused = house.get(f"{tenant.path}/metrics", tenant.key, headers={"Accept": "image/png"})
    is_problem(refused, 406)


def test_families_are_whole_over_many_pages(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = house.tenant()
    made = [house.instance(tenant, name=f"db-{number}") for number in range(3)]
    for each in made:
        tell(house, each)
    whole = scrape(house, tenant)
    for page in (1, 2, 4):
        monkeypatch.setattr(metrics, "PAGE", page)
        assert comparable(scrape(house, tenant)) == comparable(whole)
    assert list(parsed(whole)["menagerie_instance_up"]) == sorted(made)


def comparable(text: str) -> list[str]:
    """Without what passes with time."""
    return [line for line in text.splitlines() if "backup_age" not in line]


def test_a_member_of_a_team_is_told_of_its_instances_alone(house: House) -> None:
    tenant = house.tenant()
    blue, red = team(house, tenant, "Blue"), team(house, tenant, "Red")
    of_blue = in_team(house, tenant, blue, "viewer")
    of_everyone = house.instance(tenant)
    project = f"{tenant.path}/projects/{tenant.project_id}"
    for owner, seen in ((blue, {of_everyone}), (red, set[str]())):
        body = {"team_id": owner.rpartition("/")[2]}
        assert house.request("PATCH", project, tenant.key, json=body).is_success
        told = parsed(scrape(house, tenant, of_blue.session))
        assert {each for of in told.values() for each in of} == seen


def test_another_organization_is_told_nothing(house: House) -> None:
    ours, theirs = house.tenant(), house.tenant()
    instance_id = house.instance(theirs, name="canary")
    tell(house, instance_id)
    with house.database.read() as db:
        project_id = instances.fetch(db, theirs.org_id, instance_id).project_id
    assert project_id is not None
    change(house, Project, project_id, name="canary of theirs")
    for canary in ("canary", instance_id, theirs.org_id):
        assert canary not in scrape(house, ours)
    is_problem(house.get(f"{theirs.path}/metrics", ours.key), 404)


def test_backups_and_what_can_be_restored_are_told(house: House) -> None:
    tenant = house.tenant()
    instance_id = house.instance(tenant)
    with house.database.write() as db:
        instance = instances.fetch(db, tenant.org_id, instance_id)
        moment = house.database.now(db)
        add_backup(db, instance, moment - timedelta(hours=2))
        add_backup(db, instance, moment - timedelta(hours=1))
    text = scrape(house, tenant)
    age = value(text, "backup_age_seconds", instance_id)
    assert age == pytest.approx(3600, abs=60)
    told_at = value(text, "last_backup_timestamp_seconds", instance_id)
    assert told_at == pytest.approx((moment - timedelta(hours=1)).timestamp(), abs=1)
    assert value(text, "pitr_latest_timestamp_seconds", instance_id) is None


def add_backup(db: Any, instance: Instance, at: Any) -> None:
    from storage.data import backups  # noqa: PLC0415 -- of this test alone

    backup = backups.request(db, instance, "manual")
    backup.status, backup.started_at, backup.completed_at = "completed", at, at
