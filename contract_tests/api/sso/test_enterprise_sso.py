"""The enterprise page of SSO and SCIM: it answers from the same records, and records metadata."""

from typing import Any

import pytest
from sqlalchemy import select

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from contract_tests.api.sso import with_saml as saml
from contract_tests.saml import provider
from storage.events.audit import AuditEntry


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant("Enterprise", plan="enterprise")


def state(house: House, tenant: Tenant) -> Any:
    answer = house.get(f"{tenant.path}/enterprise/sso", tenant.key)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_nothing_is_set_up_at_first(house: House, tenant: Tenant) -> None:
    assert state(house, tenant) == {
        "org_id": tenant.org_id,
        "sso": {"status": "not_configured", "connections": 0},
        "scim": {"status": "not_configured", "tokens": 0},
        "saml": None,
    }


def test_what_to_enter_is_shown_before_there_is_metadata(house: House, tenant: Tenant) -> None:
    """A provider wants to know of us before it makes its metadata."""
    made = saml.put(house, tenant, signs_requests=True).json()["saml"]
    ours, connection = made["service_provider"], made["connection_id"]
    assert ours["acs_url"].endswith(f"/account/sso/{connection}/acs")
    assert house.get(ours["audience"].removeprefix("http://127.0.0.1:8080")).status_code == 200
    assert (made["identity_provider"], made["status"]) == (None, "pending_verification")
    begun = house.post("/v1/sso/sign-ins", json={"connection_id": connection})
    is_problem(begun, 409, "saml_metadata_missing")


def test_metadata_is_recorded_and_replaced_in_one_connection(house: House, tenant: Tenant) -> None:
    first = saml.connect(house, tenant)
    shown = state(house, tenant)["saml"]["identity_provider"]
    assert (shown["issuer"], shown["sso_url"]) == (provider.ISSUER, provider.SSO_URL)
    [certificate] = shown["certificates"]
    assert certificate["is_valid"] is True
    assert certificate["subject"] == "CN=idp.example.com"
    assert saml.connect(house, tenant) == first
    assert state(house, tenant)["sso"]["connections"] == 1
    with house.database.read() as db:
        rows = select(AuditEntry).where(AuditEntry.target == first).order_by(AuditEntry.id)
        entries = list(db.scalars(rows))
    assert [one.action for one in entries] == ["enterprise_sso.replace"] * 2
    assert entries[0].detail["issuer"] == provider.ISSUER


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ("<html/>", "EntityDescriptor"),
        ("no xml", "not well-formed"),
        ("<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>", "a DTD"),
        (provider.metadata_xml(sso_url="http://169.254.169.254/").decode(), "https://"),
    ],
)
def test_what_is_no_metadata_is_refused_and_changes_nothing(
    house: House, tenant: Tenant, metadata: str, said: str
) -> None:
    answer = saml.put(house, tenant, metadata_xml=metadata)
    is_problem(answer, 422)
    [error] = answer.json()["errors"]
    assert error["pointer"] == "/metadata_xml"
    assert said in error["message"]
    assert state(house, tenant)["saml"] is None


def test_sessions_of_another_provider_end(house: House, tenant: Tenant) -> None:
    connection = saml.connect(house, tenant)
    token = saml.sign_in(house, connection).json()["token"]
    assert house.get("/v1/me", token).status_code == 200
    saml.connect(house, tenant)
    assert house.get("/v1/me", token).status_code == 200
    other = provider.metadata_xml(saml.signer(house), entity_id="https://other.example.com")
    assert saml.put(house, tenant, metadata_xml=other.decode()).status_code == 200
    is_problem(house.get("/v1/me", token), 401)


def test_who_may_not_changes_nothing(house: House, tenant: Tenant) -> None:
    member = house.member(tenant.org_id, "developer")
    path = f"{tenant.path}/enterprise/sso"
    told = {"json": {"signs_requests": True}}
    is_problem(house.request("PUT", path, member.session, **told), 403, "permission_missing")
    other = house.tenant("Other")
    is_problem(house.request("PUT", path, other.key, **told), 404, "not_found")
    assert state(house, tenant)["saml"] is None
