"""SIEM deliveries: who sets them up, what is refused, and that nobody is shown their secrets."""

from typing import Any

import pytest

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from control.policy.quotas import SIEM_DELIVERIES_MAX
from storage.events import delivery_lanes

WEBHOOK: dict[str, Any] = {
    "kind": "webhook",
    "url": "https://siem.example.com/services/collector/raw?sourcetype=_json",
    "header_name": "Authorization",
    "header_value": "Splunk canary",
}
S3: dict[str, Any] = {
    "kind": "s3",
    "bucket": "acme-audit",
    "prefix": "menagerie/",
    "region": "eu-central-1",
    "access_key_id": "canary-key",
    "secret_access_key": "canary-secret",
}


def path(tenant: Tenant) -> str:
    return f"{tenant.path}/audit/siem-deliveries"


def made(house: House, tenant: Tenant, **body: Any) -> dict[str, Any]:
    answer = house.post(path(tenant), tenant.key, json={"target": WEBHOOK, **body})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def switch(house: House, tenant: Tenant, delivery_id: str, action: str) -> dict[str, Any]:
    answer = house.post(f"{path(tenant)}/{delivery_id}/actions/{action}", tenant.key)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def entries(house: House, tenant: Tenant, action: str) -> list[dict[str, Any]]:
    listed = house.get(f"{tenant.path}/audit", tenant.key, params={"action": action})
    found: list[dict[str, Any]] = listed.json()["items"]
    return found


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


def test_a_webhook_is_made_listed_and_removed(house: House, tenant: Tenant) -> None:
    one = made(house, tenant)
    secret = one.pop("signing_secret")
    assert secret.startswith("whsec_")
    assert one["target"] == {k: WEBHOOK[k] for k in ("kind", "url", "header_name")}
    assert (one["format"], one["status"], one["enabled"]) == ("envelope", "active", True)
    listed = house.get(path(tenant), tenant.key)
    assert listed.json()["items"] == [one]
    assert "canary" not in listed.text
    told = {"format": "envelope", "kind": "webhook", "host": "siem.example.com"}
    assert entries(house, tenant, "siem_delivery.create")[0]["detail"] == told
    gone = house.request("DELETE", f"{path(tenant)}/{one['id']}", tenant.key)
    assert gone.status_code == 204
    assert house.get(path(tenant), tenant.key).json()["items"] == []
    (entry,) = entries(house, tenant, "siem_delivery.delete")
    assert (entry["target"], entry["detail"]) == (one["id"], {"host": "siem.example.com"})


def test_the_audit_log_tells_the_host_alone_of_a_url_without_a_path(
    house: House, tenant: Tenant
) -> None:
    one = made(house, tenant, target={**WEBHOOK, "url": "https://siem.example.com?token=canary"})
    switch(house, tenant, one["id"], "disable")
    house.request("DELETE", f"{path(tenant)}/{one['id']}", tenant.key)
    for action in ("create", "switch", "delete"):
        (entry,) = entries(house, tenant, f"siem_delivery.{action}")
        assert entry["detail"]["host"] == "siem.example.com"


def test_a_bucket_has_no_signing_secret_and_shows_no_key(house: House, tenant: Tenant) -> None:
    one = made(house, tenant, target=S3, format="ocsf")
    assert one["signing_secret"] is None
    shown = {k: S3[k] for k in ("kind", "bucket", "prefix", "region")}
    assert one["target"] == {**shown, "endpoint": None}
    (entry,) = entries(house, tenant, "siem_delivery.create")
    told = {"format": "ocsf", "kind": "s3", "bucket": "acme-audit", "endpoint": None}
    assert entry["detail"] == told


@pytest.mark.every_database
def test_of_several_deletions_at_once_one_deletes(house: House, tenant: Tenant) -> None:
    one = f"{path(tenant)}/{made(house, tenant)['id']}"
    asked: list[tuple[Any, ...]] = [("DELETE", one, tenant.key, {}) for _ in range(6)]
    statuses = sorted(each.status_code for each in house.together(*asked))
    assert statuses == [204, *[404] * 5]


def test_it_is_disabled_and_enabled(house: House, tenant: Tenant) -> None:
    one = made(house, tenant)
    for _ in range(2):
        assert switch(house, tenant, one["id"], "disable")["status"] == "disabled"
    with house.database.read() as db:
        assert delivery_lanes.fetch(db, one["id"]).due is None
    assert switch(house, tenant, one["id"], "enable")["status"] == "active"
    with house.database.read() as db:
        assert delivery_lanes.fetch(db, one["id"]).due is not None
    told = [each["detail"]["action"] for each in entries(house, tenant, "siem_delivery.switch")]
    assert told == ["enable", "disable", "disable"]
    refused = house.post(f"{path(tenant)}/{one['id']}/actions/erase", tenant.key)
    assert refused.status_code in {404, 422}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"target": {**WEBHOOK, "url": "http://siem.example.com/"}}, "/target/url"),
        ({"target": {**WEBHOOK, "url": "https://127.0.0.1/"}}, "/target/url"),
        ({"target": {**WEBHOOK, "header_value": "a\nb"}}, "/target/header_value"),
        ({"target": {**WEBHOOK, "header_name": "a:b"}}, "/target/header_name"),
        ({"target": {**WEBHOOK, "bucket": "acme-audit"}}, "/target/bucket"),
        ({"target": {**S3, "endpoint": "https://10.0.0.1"}}, "/target/endpoint"),
        ({"target": {**WEBHOOK, "url": "https://[8.8.8.8]/"}}, "/target/url"),
        ({"target": {**WEBHOOK, "header_name": "Keep-Alive"}}, "/target/header_name"),
        ({"target": {**S3, "prefix": "../"}}, "/target/prefix"),
        ({"target": {**S3, "prefix": "a/./b/"}}, "/target/prefix"),
        ({"target": {**S3, "prefix": "a//b/"}}, "/target/prefix"),
        ({"target": {**S3, "prefix": "/a/"}}, "/target/prefix"),
        ({"target": {**S3, "prefix": "a/.."}}, None),
        ({"target": {**S3, "bucket": "a/b"}}, "/target/bucket"),
        ({"target": {**S3, "region": "x.evil.example/"}}, "/target/region"),
        ({"format": "cef"}, "/format"),
        ({"begin_at": "2999-01-01T00:00:00Z"}, "/begin_at"),
    ],
)
def test_what_is_refused(
    house: House, tenant: Tenant, body: dict[str, Any], pointer: str | None
) -> None:
    answer = house.post(path(tenant), tenant.key, json={"target": WEBHOOK, **body})
    if pointer is None:
        # With what follows it that is a name as good as any.
        assert answer.status_code == 201
        return
    is_problem(answer, 422)
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_there_are_five_however_many_are_asked_for_at_once(house: House, tenant: Tenant) -> None:
    request = "POST", path(tenant), tenant.key
    asked = [(*request, {"json": {"target": WEBHOOK}}) for _ in range(SIEM_DELIVERIES_MAX + 5)]
    answers = house.together(*asked)
    statuses = sorted(each.status_code for each in answers)
    assert statuses == [201] * SIEM_DELIVERIES_MAX + [422] * 5
    assert len(house.get(path(tenant), tenant.key).json()["items"]) == SIEM_DELIVERIES_MAX


def test_anothers_is_not_found(house: House, tenant: Tenant) -> None:
    other = made(house, house.tenant())["id"]
    for method, at in (("DELETE", other), ("POST", f"{other}/actions/enable")):
        is_problem(house.request(method, f"{path(tenant)}/{at}", tenant.key), 404)
