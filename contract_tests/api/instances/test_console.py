"""Console sessions: who gets a URL, and of which instances."""

import pytest

from contract_tests.api.access.test_organizations import audited
from contract_tests.api.harness import House
from contract_tests.api.instances.test_credentials import claims
from contract_tests.api.network.test_network import authority
from contract_tests.api.rows import Estate, estate, is_problem
from control.boundary import identity
from storage.access import sessions
from storage.instances import instances


def of(here: Estate) -> str:
    return f"{here.tenant.path}/instances/{here.instance_id}/console-sessions"


@pytest.fixture(scope="module")
def here(house: House) -> Estate:
    return estate(house)


def test_the_url_is_signed_for_the_cell_and_audited(house: House, here: Estate) -> None:
    answer = house.post(of(here), here.tenant.key)
    assert answer.status_code == 201
    made = answer.json()
    assert made["url"].startswith("https://cell.local.localhost:8443/v1/console/")
    assert made["method"] == "GET"
    said = claims(made["url"])
    assert (said["action"], said["instance_id"]) == ("console", here.instance_id)
    assert ("instance.console.open", here.instance_id) in audited(house, here.tenant.org_id)
    again = house.post(of(here), here.tenant.key).json()["url"]
    assert claims(again)["jti"] != said["jti"]


def test_the_url_names_what_it_was_asked_for_with(house: House, here: Estate) -> None:
    """The cell tells it while a console is open, which ends with it."""
    tenant = here.tenant
    by_key = claims(house.post(of(here), tenant.key).json()["url"])
    assert by_key["holder"] == tenant.key_id
    by_session = claims(house.post(of(here), tenant.owner.session).json()["url"])
    with house.database.read() as db:
        found = sessions.by_token_hash(db, identity.token_sha256(tenant.owner.session))
    assert found is not None
    assert by_session["holder"] == found.id
    # A person is one, with whatever key or session; a hash is enough for the cell.
    assert by_key["person"] == by_session["person"]
    assert found.user_id not in str(by_session)


@pytest.mark.parametrize(
    ("role", "status"),
    [("owner", 201), ("admin", 201), ("developer", 201), ("member", 201), ("auditor", 403)],
)
def test_who_may_open_it(house: House, here: Estate, role: str, status: int) -> None:
    person = house.member(here.tenant.org_id, role)
    assert house.post(of(here), person.session).status_code == status


def test_a_key_needs_the_scope(house: House, here: Estate) -> None:
    tenant = here.tenant
    without, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=["credentials:reveal"])
    is_problem(house.post(of(here), without), 403, "permission_missing")
    having, _ = house.key(tenant.org_id, tenant.owner, "owner", scopes=["console:open"])
    assert house.post(of(here), having).status_code == 201


def test_it_asks_for_the_assurance_of_reveal(house: House) -> None:
    here = estate(house)
    tenant = here.tenant
    house.change_org(tenant.org_id, require_mfa=True)
    for token in (tenant.key, tenant.owner.session):
        is_problem(house.post(of(here), token), 403, "mfa_required")
    assert house.post(of(here), house.session(tenant.owner.id, mfa=True)).status_code == 201


def test_an_instance_that_is_not_running_has_none(house: House) -> None:
    tenant = house.tenant()
    fresh = Estate(tenant, house.instance(tenant, running=False))
    is_problem(house.post(of(fresh), tenant.key), 409)
    house.settle()
    house.post(f"{tenant.path}/instances/{fresh.instance_id}/actions/pause", tenant.key)
    house.settle()
    paused = house.post(of(fresh), tenant.key)
    is_problem(paused, 409)
    assert "paused; resume it first" in paused.json()["detail"]
    house.request("DELETE", f"{tenant.path}/instances/{fresh.instance_id}", tenant.key)
    is_problem(house.post(of(fresh), tenant.key), 409)


def test_an_engine_without_sql_has_none(house: House) -> None:
    here = estate(house)
    with house.database.write() as db:
        instances.fetch(db, here.tenant.org_id, here.instance_id).engine = "valkey"
    refused = house.post(of(here), here.tenant.key)
    is_problem(refused, 409)
    assert refused.json()["detail"] == "Valkey has no SQL console"


def test_it_is_asked_for_from_where_one_may_connect(house: House) -> None:
    here = estate(house)
    path = f"{here.tenant.path}/instances/{here.instance_id}/network"
    session = house.session(here.tenant.owner.id, mfa=True)

    def allow(body: dict[str, object]) -> None:
        answer = house.request("PUT", path, session, json=body, headers={"If-Match": "*"})
        assert answer.status_code == 200, answer.text

    allow({"allow_cidrs": ["192.0.2.0/24"]})
    is_problem(house.post(of(here), here.tenant.key), 403, "address_not_allowed")
    allow({"allow_cidrs": ["192.0.2.0/24", "203.0.113.0/24"]})
    assert house.post(of(here), here.tenant.key).status_code == 201
    allow({"client_ca_pem": authority()[0]})
    is_problem(house.post(of(here), here.tenant.key), 409)
