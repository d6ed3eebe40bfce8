"""Times at the ends of the calendar: each is worked with or refused, in every place there is."""

from typing import Any

import pytest

from contract_tests.api.harness import House
from contract_tests.api.oracle import document
from contract_tests.api.rows import Estate, estate, is_problem
from contract_tests.by_day import one_in

_NIGHTLY = (pytest.mark.nightly,)
# Other ways to write the same moment have their turn at night.
OFFSETS = {"Z": (), "-23:59": (), "+23:59": (), "z": _NIGHTLY, "+00:00": _NIGHTLY}
EXTREMES = [
    pytest.param(f"{moment}{offset}", marks=marks)
    for moment in (
        "0000-01-01T00:00:00",
        "0001-01-01T00:00:00",
        "0001-01-01T12:00:00.0000000001",
        "0001-01-02T00:00:00",
        "1582-10-10T00:00:00",
        "1969-12-31T23:59:59.999",
        "2016-12-31T23:59:60",
        "9999-12-31T00:00:00",
        "9999-12-31T23:59:59.999999999",
    )
    for offset, marks in OFFSETS.items()
]


@pytest.fixture(scope="module")
def here(house: House) -> Estate:
    return estate(house)


def places(node: Any, above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Where the document lets a caller write a time."""
    if isinstance(node, dict):
        if node.get("$ref") == "#/components/schemas/Instant":
            return {above}
        return set().union(*(places(value, (*above, str(key))) for key, value in node.items()))
    if isinstance(node, list):
        return set().union(*(places(value, (*above, str(n))) for n, value in enumerate(node)))
    return set()


def test_every_place_that_takes_a_time_is_tried_here() -> None:
    whole = document().raw
    taken = {place[2] if place[0] == "components" else place[1] for place in places(whole)}
    metrics = "/v1/orgs/{org_id}/instances/{instance_id}/metrics"
    bodies = {"ApiKeyCreate", "BranchCreate", "RestoreCreate", "SiemDeliveryCreate"}
    bodies |= {"WebhookRedelivery", "ScimTokenCreate", *ENDS.values()}
    assert taken == {*bodies, "AuditFrom", "AuditTo", "UsageFrom", "UsageTo", metrics}


ENDS = {
    "service-accounts": "ServiceAccountCreate",
    "service-accounts/{service_account_id}/keys": "ServiceAccountKeyCreate",
    "support-grants": "SupportGrantCreate",
}
"""Paths of what is made with an `expires_at`, and the body of each."""


@pytest.mark.parametrize("written", one_in(3, EXTREMES))
@pytest.mark.parametrize("path", ENDS)
def test_the_end_of_what_is_given(house: House, here: Estate, path: str, written: str) -> None:
    given = {"permissions": ["org:read"], "reason": "r"} if path == "support-grants" else {}
    named = given or {"name": f"{path}{written}"[-60:]}
    where = f"{here.tenant.path}/{path.format_map(here.ids)}"
    answer = house.post(where, here.tenant.key, json={**named, "expires_at": written})
    assert answer.status_code in (201, 422), answer.text
    if answer.status_code == 422:
        assert answer.json()["errors"][0]["pointer"] == "/expires_at"


@pytest.mark.parametrize("written", one_in(9, EXTREMES))
def test_the_end_of_a_scim_token(house: House, written: str) -> None:
    tenant = house.tenant(plan="enterprise")
    owner = house.session(tenant.owner.id, mfa=True)
    body = {"name": "provider", "expires_at": written}
    answer = house.post(f"{tenant.path}/sso/scim-tokens", owner, json=body)
    assert answer.status_code in (201, 422), answer.text
    if answer.status_code == 422:
        assert answer.json()["errors"][0]["pointer"] == "/expires_at"


@pytest.mark.parametrize("written", one_in(3, EXTREMES))
def test_metrics(house: House, here: Estate, written: str) -> None:
    path = f"{here.tenant.path}/instances/{here.instance_id}/metrics"
    for params in ({"from": written}, {"to": written}, {"from": written, "to": written}):
        answer = house.get(path, here.tenant.key, params=params)
        assert answer.status_code in (200, 422), answer.text
        if answer.status_code == 422:
            assert answer.json()["errors"][0]["parameter"] in params


@pytest.mark.parametrize("written", one_in(3, EXTREMES))
@pytest.mark.parametrize("path", ["audit", "audit/export"])
def test_the_audit_log(house: House, here: Estate, path: str, written: str) -> None:
    for params in ({"from": written}, {"to": written}, {"from": written, "to": written}):
        answer = house.get(f"{here.tenant.path}/{path}", here.tenant.key, params=params)
        assert answer.status_code in (200, 422), answer.text
        if answer.status_code == 422:
            assert answer.json()["errors"][0]["parameter"] in params


@pytest.mark.parametrize("written", one_in(3, EXTREMES))
def test_when_a_siem_delivery_begins(house: House, here: Estate, written: str) -> None:
    path = f"{here.tenant.path}/audit/siem-deliveries"
    target = {"kind": "webhook", "url": "https://siem.example.com/in"}
    answer = house.post(path, here.tenant.key, json={"target": target, "begin_at": written})
    if answer.status_code == 201:
        made = f"{path}/{answer.json()['id']}"
        assert house.request("DELETE", made, here.tenant.key).status_code == 204
    else:
        is_problem(answer, 422)
        assert answer.json()["errors"][0]["pointer"] == "/begin_at"


@pytest.mark.parametrize("written", one_in(3, EXTREMES))
def test_a_span_of_deliveries(house: House, here: Estate, written: str) -> None:
    path = f"{here.tenant.path}/webhooks/{here.webhook_id}/actions/redeliver"
    for name, other in (("from", "to"), ("to", "from")):
        body = {name: written, other: "2026-11-30T00:00:00Z"}
        answer = house.post(path, here.tenant.key, json=body)
        assert answer.status_code in (202, 422), answer.text
        if answer.status_code == 422:
            assert answer.json()["errors"][0]["pointer"] in {"/from", "/to"}


@pytest.mark.parametrize("written", one_in(3, EXTREMES))
def test_a_moment_to_restore(house: House, here: Estate, written: str) -> None:
    """Which none of these is, of an instance that has no window."""
    path = f"{here.tenant.path}/instances/{here.instance_id}"
    restoring = f"{path}/backups/{here.backup_id}/actions/restore"
    for asked in (f"{path}/branches", restoring):
        answer = house.post(asked, here.tenant.key, json={"at": written})
        assert answer.status_code in (409, 422), answer.text
        if answer.status_code == 422:
            assert answer.json()["errors"][0]["pointer"] == "/at"


@pytest.mark.parametrize("written", EXTREMES)
def test_a_keys_expiry(house: House, here: Estate, written: str) -> None:
    tenant = here.tenant
    path = f"{tenant.path}/api-keys"
    made = house.post(
        path, tenant.key, json={"name": "far", "role": "owner", "expires_at": written}
    )
    if made.status_code == 422:
        assert made.json()["errors"][0]["pointer"] == "/expires_at"
        return
    assert made.status_code == 201, made.text
    assert made.json()["expires_at"].startswith("9999-12-3")
    key = made.json()["key"]
    assert house.get(tenant.path, key).status_code == 200
    assert house.get(path, tenant.key).status_code == 200
    shorter: dict[str, Any] = {
        "name": "shorter",
        "expires_at": made.json()["expires_at"],
        "scopes": [],
    }
    kept = house.post(path, key, json=shorter)
    assert kept.status_code == 201, kept.text
    is_problem(house.post(path, key, json={"name": "longer", "scopes": []}), 422)
    for each in (kept, made):
        revoked = house.request("DELETE", f"{path}/{each.json()['id']}", tenant.key)
        assert revoked.status_code == 204
