"""The BAA, and instances with secure placement, which are on machines of their own."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from contract_tests import written
from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import CELL_ID, House, Tenant
from contract_tests.api.rows import is_problem
from control.policy.agreements import Agreement
from storage.access.baa_signatures import BaaSignature
from storage.catalogue import cells
from storage.errors import StateConflict, StorageUnavailable
from storage.instances import instances, placements

SECURE_CELL = f"{CELL_ID[:-1]}8"
SECURE = {"engine": "duckdb", "size": "f0", "placement": "secure"}


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant(plan="enterprise")


@pytest.fixture
def own_house(make_house: MakeHouse) -> House:
    """With a second cell, for secure placement, in a region that has shared cells too."""
    house = make_house()
    with house.database.write() as db:
        first = cells.fetch(db, CELL_ID)
        cell = cells.register(
            db,
            SECURE_CELL,
            region=first.region,
            url=first.url,
            public_url=first.public_url,
            instance_domain=first.instance_domain,
            placement="secure",
        )
        cell.ports, cell.engines = first.ports, first.engines
        cell.last_seen_at = house.database.now(db)
    return house


def compliance(house: House, tenant: Tenant, token: str | None = None) -> Any:
    answer = house.get(f"{tenant.path}/compliance", token or tenant.key)
    assert answer.status_code == 200, answer.text
    return answer.json()


def sign(house: House, tenant: Tenant, *, mfa: bool = True, **body: str) -> httpx.Response:
    owner = house.session(tenant.owner.id, mfa=mfa)
    chosen = {"version": house.services.settings.baa.version, **body}
    return house.post(f"{tenant.path}/compliance/baa/sign", owner, json=chosen)


def order(house: House, tenant: Tenant, query: str = "", **body: Any) -> httpx.Response:
    path = f"{tenant.path}/projects/{tenant.project_id}/instances{query}"
    return house.post(path, tenant.key, json={**SECURE, **body})


def keywords(answer: httpx.Response) -> list[tuple[str, str]]:
    is_problem(answer, 422, "invalid_request")
    return [(each["pointer"], each["keyword"]) for each in answer.json()["errors"]]


def cell_of(house: House, tenant: Tenant, instance_id: str) -> str:
    with house.database.read() as db:
        return instances.fetch(db, tenant.org_id, instance_id).cell_id


def test_an_owner_signs_and_all_see_it(house: House, tenant: Tenant) -> None:
    before = compliance(house, tenant)
    text, version = before["baa"]["text"], before["baa"]["version"]
    assert (before["baa"]["status"], before["baa"]["signature"]) == ("unsigned", None)
    assert version == Agreement.of(text).version
    assert before["baa"]["is_template"] is True
    answer = sign(house, tenant, version=version)
    assert answer.status_code == 201, answer.text
    auditor = house.member(tenant.org_id, "auditor")
    after = compliance(house, tenant, auditor.session)
    assert after["baa"] == answer.json()
    assert after["baa"]["status"] == "signed"
    assert after["baa"]["signature"]["signed_by"] == tenant.owner.id
    assert after["baa"]["signature"]["signer_email"] == tenant.owner.email
    assert after["mfa"] == {"required": False, "members_without_mfa": 2}
    with house.database.read() as db:
        entry = written.audited(db, tenant.org_id)[0]
        assert (entry.action, entry.detail) == ("org.baa.sign", {"version": version})
        event = written.events_of(db, tenant.org_id)[-1]
        assert event.type == "org.baa_signed.v1"
        assert db.get_one(BaaSignature, (tenant.org_id, version)).text == text


def test_a_version_is_signed_once(house: House, tenant: Tenant) -> None:
    assert sign(house, tenant).is_success
    is_problem(sign(house, tenant), 409, "baa_signed")


@pytest.mark.every_database  # what locks is the database
def test_of_many_signatures_at_once_one_is_kept(house: House, tenant: Tenant) -> None:
    owner = house.session(tenant.owner.id, mfa=True)
    body = {"version": house.services.settings.baa.version}
    asked = ("POST", f"{tenant.path}/compliance/baa/sign", owner, {"json": body})
    answers = house.together(*[asked] * 20)
    assert sorted(each.status_code for each in answers) == [201, *[409] * 19]
    with house.database.read() as db:
        rows = select(func.count()).select_from(BaaSignature)
        assert db.scalar(rows.where(BaaSignature.org_id == tenant.org_id)) == 1


def test_another_text_than_the_one_that_was_read_is_not_signed(
    make_house: MakeHouse,
) -> None:
    house = make_house()
    tenant = house.tenant(plan="enterprise")
    old = house.services.settings.baa.version
    assert sign(house, tenant).is_success
    newer = Agreement.of("# BAA\n\nDate: 2027-01-01\n")
    settings = replace(house.services.settings, baa=newer)
    object.__setattr__(house.services, "settings", settings)
    is_problem(sign(house, tenant, version=old), 409, "baa_outdated")
    found = compliance(house, tenant)["baa"]
    assert (found["status"], found["version"]) == ("outdated", newer.version)
    assert (found["signature"]["version"], found["is_template"]) == (old, False)
    assert compliance(house, tenant)["secure_placement"]["baa_signed"] is True
    assert sign(house, tenant).is_success
    assert compliance(house, tenant)["baa"]["status"] == "signed"


def test_a_plan_without_secure_placement_signs_nothing(house: House) -> None:
    tenant = house.tenant(plan="team")
    is_problem(sign(house, tenant), 403, "plan_required")
    found = compliance(house, tenant)["secure_placement"]
    assert (found["plan_offers"], found["plans"]) == (False, ["enterprise"])


@pytest.mark.parametrize(
    "version",
    ["", "latest", "2026-11-29", f"2026-11-29-{'A' * 64}", f"2026-11-29-{'a' * 64}\n", "a" * 9000],
)
def test_what_is_no_version_is_refused(house: House, tenant: Tenant, version: str) -> None:
    is_problem(sign(house, tenant, version=version), 422)


def test_others_read_and_sign_nothing(house: House, tenant: Tenant) -> None:
    stranger = house.tenant(plan="enterprise")
    session = house.session(stranger.owner.id, mfa=True)
    body = {"version": house.services.settings.baa.version}
    path = f"{tenant.path}/compliance"
    is_problem(house.get(path, session), 404, "not_found")
    is_problem(house.post(f"{path}/baa/sign", session, json=body), 404, "not_found")
    admin = house.member(tenant.org_id, "admin", mfa=True)
    is_problem(house.post(f"{path}/baa/sign", admin.session, json=body), 403, "owner_required")
    is_problem(house.post(f"{path}/baa/sign", tenant.key, json=body), 403, "session_required")
    is_problem(sign(house, tenant, mfa=False), 403, "mfa_required")
    assert compliance(house, tenant)["baa"]["status"] == "unsigned"


def test_secure_placement_needs_plan_signature_and_a_cell(house: House, tenant: Tenant) -> None:
    team = house.tenant(plan="team")
    assert keywords(order(house, team))[:2] == [("/placement", "plan"), ("/placement", "baa")]
    for query in ("", "?dry_run=true"):
        answer = order(house, tenant, query)
        assert keywords(answer) == [("/placement", "baa"), ("/placement", "available")]
        assert "compliance/baa/sign" in answer.text
    assert sign(house, tenant).is_success
    assert keywords(order(house, tenant)) == [("/placement", "available")]
    found = compliance(house, tenant)["secure_placement"]
    assert (found["available"], found["baa_signed"], found["regions"]) == (False, True, [])


def test_secure_and_shared_instances_are_on_machines_of_their_own(own_house: House) -> None:
    house = own_house
    tenant = house.tenant(plan="enterprise")
    regions = house.get("/v1/regions", tenant.key).json()["items"]
    assert regions[0]["placements"] == ["shared", "secure"]
    assert keywords(order(house, tenant)) == [("/placement", "baa")]
    assert sign(house, tenant).is_success
    assert compliance(house, tenant)["secure_placement"]["available"] is True
    assert order(house, tenant, "?dry_run=true").json()["order"]["placement"] == "secure"
    for placement, cell_id in {"secure": SECURE_CELL, "shared": CELL_ID}.items():
        made = [house.instance(tenant, running=False, placement=placement) for _ in range(3)]
        assert [cell_of(house, tenant, each) for each in made] == [cell_id] * 3


def test_a_region_without_secure_cells_is_none_for_secure_placement(own_house: House) -> None:
    house = own_house
    tenant = house.tenant(plan="enterprise")
    assert sign(house, tenant).is_success
    with house.database.write() as db:
        cells.fetch(db, SECURE_CELL).region = "north"
    answer = order(house, tenant, region="local")
    assert keywords(answer) == [("/region", "enum")]
    assert "'local' is not a region with secure cells; available: north" in answer.text
    # The organization's default region is local.
    made = order(house, tenant)
    assert made.json()["region"] == "north"
    assert keywords(order(house, tenant, placement="shared", region="north")) == [
        ("/region", "enum")
    ]


def test_branches_and_restores_of_a_secure_instance_stay_secure(own_house: House) -> None:
    house = own_house
    tenant = house.tenant(plan="enterprise")
    assert sign(house, tenant).is_success
    source = house.instance(tenant, placement="secure")
    path = f"{tenant.path}/instances/{source}"
    branch = house.post(f"{path}/branches", tenant.key, json={"name": "branch"}).json()
    assert branch["placement"] == "secure"
    assert cell_of(house, tenant, branch["id"]) == SECURE_CELL
    backup = house.post(f"{path}/backups", tenant.key, json={"label": "now"}).json()
    house.settle()
    restoring = house.post(f"{path}/backups/{backup['id']}/actions/restore", tenant.key, json={})
    restored = restoring.json()["target_instance_id"]
    assert cell_of(house, tenant, restored) == SECURE_CELL
    found = house.get(f"{tenant.path}/instances/{restored}", tenant.key).json()
    assert found["placement"] == "secure"


def test_an_instance_keeps_its_placement(own_house: House) -> None:
    house = own_house
    tenant = house.tenant(plan="enterprise")
    assert sign(house, tenant).is_success
    for placement, other in (("secure", "shared"), ("shared", "secure")):
        path = f"{tenant.path}/instances/{house.instance(tenant, placement=placement)}"
        answer = house.request("PATCH", path, tenant.key, json={"placement": other})
        assert keywords(answer) == [("/placement", "available")]
        same = house.request("PATCH", path, tenant.key, json={"placement": placement})
        assert same.status_code == 200


def test_a_cell_with_instances_keeps_its_placement(own_house: House) -> None:
    house = own_house
    tenant = house.tenant(plan="enterprise")
    instance_id = house.instance(tenant)
    with house.database.write() as db:
        placements.check_cell(db, CELL_ID, "shared")
        placements.check_cell(db, SECURE_CELL, "shared")
        with pytest.raises(StateConflict, match="has 1 instance of another"):
            placements.check_cell(db, CELL_ID, "secure")
    owner = house.session(tenant.owner.id, mfa=True)
    body = {
        "confirm_name": house.get(f"{tenant.path}/instances/{instance_id}", owner).json()["name"]
    }
    erased = house.post(f"{tenant.path}/instances/{instance_id}/actions/erase", owner, json=body)
    assert erased.is_success, erased.text
    house.settle()
    with house.database.write() as db:
        placements.check_cell(db, CELL_ID, "secure")


@pytest.mark.every_database  # PostgreSQL reads what it locks anew
def test_a_cell_that_is_for_another_placement_since_it_was_read_takes_nothing(house: House) -> None:
    with house.database.write() as db:
        cell = cells.fetch(db, CELL_ID)
        db.expunge(cell)
        cells.lock(db, [cell])
        cell.placement = "secure"
        if db.get_bind().dialect.name == "postgresql":
            with pytest.raises(StorageUnavailable, match="other settings"):
                cells.lock(db, [cell])
