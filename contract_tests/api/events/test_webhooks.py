"""Webhook endpoints through the API: who may register what, and what is shown of it."""

from typing import Any

import pytest

from contract_tests.api.harness import House, Tenant
from control.webhooks import sending
from storage.events import delivery_lanes, events, webhook_deliveries, webhook_endpoints
from storage.events.webhook_deliveries import WebhookDelivery
from storage.events.webhook_endpoints import WebhookEndpoint

URL = "https://hooks.example.com/databases"


def owner(house: House, tenant: Tenant) -> str:
    return house.session(tenant.owner.id, mfa=True)


def create(house: House, tenant: Tenant, **body: Any) -> Any:
    chosen = {"url": URL, "events": ["instance.*"], **body}
    return house.post(f"{tenant.path}/webhooks", tenant.key, json=chosen)


def made(house: House, tenant: Tenant, **body: Any) -> dict[str, Any]:
    answer = create(house, tenant, **body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def delivered(house: House, webhook: dict[str, Any], status: str, kind: str = "x.y.v1") -> str:
    with house.database.write() as db:
        moment = house.database.now(db)
        row = {
            "id": webhook_deliveries.new_id(),
            "org_id": webhook["org_id"],
            "webhook_id": webhook["id"],
            "event_id": "evt_01JD7QK3V8Y2M4N6P8R0S2T4V6",
            "event_type": kind,
            "status": status,
            "attempts": [],
            "attempt_count": 0,
            "failures": 0,
            "next_attempt_at": moment if status == "pending" else None,
            "until": moment,
            "lease": 0,
        }
        webhook_deliveries.insert_all(db, [row])
    return str(row["id"])


@pytest.mark.every_database
def test_each_of_several_rotations_at_once_has_its_time(house: House) -> None:
    tenant = house.tenant()
    webhook = made(house, tenant)
    path = f"{tenant.path}/webhooks/{webhook['id']}/actions/rotate-secret"
    asked: list[tuple[Any, ...]] = [
        ("POST", path, owner(house, tenant), {"json": {}}) for _ in range(6)
    ]
    answers = house.together(*asked)
    assert {each.status_code for each in answers} == {200}
    shown = {each.json()["secret"] for each in answers}
    with house.database.read() as db:
        endpoint = db.get_one(WebhookEndpoint, webhook["id"])
        sealed = endpoint.sealed(house.database.now(db))
    context = sending.secret_context(webhook["id"])
    signing = [house.services.sealer.open(each, context).decode() for each in sealed]
    assert len({*signing}) == 2
    assert shown.issuperset(signing), "the one before the last, and not the oldest"


@pytest.mark.every_database
def test_of_several_deletions_at_once_one_deletes(house: House) -> None:
    tenant = house.tenant()
    webhook = made(house, tenant)
    path = f"{tenant.path}/webhooks/{webhook['id']}"
    asked: list[tuple[Any, ...]] = [("DELETE", path, owner(house, tenant), {}) for _ in range(6)]
    statuses = sorted(each.status_code for each in house.together(*asked))
    assert statuses == [204, *[404] * 5]


@pytest.mark.parametrize("house", ["postgresql"], indirect=True)
def test_one_that_is_deleted_while_they_are_listed_is_left_out(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = house.tenant()
    kept, gone = made(house, tenant)["id"], made(house, tenant)["id"]
    page = webhook_endpoints.page

    def deletes(*asked: Any, **options: Any) -> Any:
        found = page(*asked, **options)
        with house.database.write() as db:
            webhook_endpoints.delete(db, webhook_endpoints.fetch(db, tenant.org_id, gone))
        return found

    monkeypatch.setattr(webhook_endpoints, "page", deletes)
    listed = house.get(f"{tenant.path}/webhooks", tenant.key)
    assert [one["id"] for one in listed.json()["items"]] == [kept]


def test_an_endpoint_is_registered_shown_changed_and_deleted(house: House) -> None:
    tenant = house.tenant()
    webhook = made(house, tenant, description="chat")
    secret = webhook.pop("secret")
    assert secret.startswith("whsec_")
    path = f"{tenant.path}/webhooks/{webhook['id']}"
    assert house.get(path, tenant.key).json() == webhook
    assert house.get(f"{tenant.path}/webhooks", tenant.key).json()["items"] == [webhook]
    changed = house.request("PATCH", path, tenant.key, json={"events": ["*"], "enabled": False})
    assert changed.json()["events"] == ["*"]
    assert (changed.json()["enabled"], changed.json()["disabled_reason"]) == (False, None)
    assert changed.json()["disabled_at"] is not None
    assert house.request("DELETE", path, tenant.key).status_code == 204
    assert house.get(path, tenant.key).status_code == 404
    audit = house.get(f"{tenant.path}/audit", tenant.key).json()["items"]
    told = {one["action"]: one["detail"] for one in audit}
    assert told["webhook.create"] == {"host": "hooks.example.com", "events": ["instance.*"]}
    assert told["webhook.update"]["deliveries_dropped"] == 0
    assert "webhook.delete" in told
    assert secret not in str(audit)


@pytest.mark.parametrize(
    ("body", "pointer", "said"),
    [
        ({"url": "http://example.com/"}, "/url", "must begin with https://"),
        ({"url": "https://127.0.0.1/"}, "/url", "the URL must have a public address"),
        ({"url": "https://[8.8.8.8]/"}, "/url", "nothing but an IPv6 address in brackets"),
        ({"url": "https://[2606:4700::1111.]/"}, "/url", "nothing but an IPv6 address"),
        ({"url": "https://0x7f.1/"}, "/url", "usual form"),
        ({"url": "https://u:p@example.com/"}, "/url", "must not have a user"),
        ({"events": ["instance.ready.v9"]}, "/events/0", "instance.ready.v1"),
        ({"events": ["*", "nothing.*"]}, "/events/1", "instance.*"),
        (
            {"filters": {"project_ids": ["proj_01JD7QK3V8Y2M4N6P8R0S2T4V6"]}},
            "/filters/project_ids/0",
            "there is no project",
        ),
    ],
)
def test_what_cannot_be_is_said_with_its_place(
    house: House, body: dict[str, Any], pointer: str, said: str
) -> None:
    refused = create(house, house.tenant(), **body)
    assert refused.status_code == 422
    (fault,) = refused.json()["errors"]
    assert fault["pointer"] == pointer
    assert said in fault["message"]


def test_a_filter_by_what_another_organization_has_is_one_by_nothing(house: House) -> None:
    mine, other = house.tenant(), house.tenant()
    for wanted in (other.project_id, "proj_01JD7QK3V8Y2M4N6P8R0S2T4V6"):
        refused = create(house, mine, filters={"project_ids": [wanted]})
        assert refused.status_code == 422
        assert refused.json()["detail"] == f"there is no project {wanted} in the organization"
    assert create(house, mine, filters={"project_ids": [mine.project_id]}).status_code == 201


def test_twenty_at_once_make_ten(house: House) -> None:
    tenant = house.tenant()
    body = {"url": URL, "events": ["*"]}
    ask = ("POST", f"{tenant.path}/webhooks", tenant.key, {"json": body})
    answers = house.together(*(ask for _ in range(20)))
    assert sorted(one.status_code for one in answers) == [201] * 10 + [422] * 10
    assert {one.json()["errors"][0]["keyword"] for one in answers if one.status_code == 422} == {
        "quota"
    }


def test_a_rotation_shows_the_new_secret_once_and_the_former_signs_on(house: House) -> None:
    tenant = house.tenant()
    webhook = made(house, tenant)
    path = f"{tenant.path}/webhooks/{webhook['id']}"
    rotated = house.post(f"{path}/actions/rotate-secret", tenant.key, json={"overlap_seconds": 60})
    assert rotated.json()["secret"] not in (None, webhook["secret"])
    assert rotated.json()["secret_overlap_until"] is not None
    assert "secret" not in house.get(path, tenant.key).json()
    at_once = house.post(f"{path}/actions/rotate-secret", tenant.key, json={"overlap_seconds": 0})
    assert at_once.json()["secret_overlap_until"] is None


def test_a_test_is_a_delivery_that_is_due(house: House) -> None:
    tenant = house.tenant()
    webhook = made(house, tenant)
    path = f"{tenant.path}/webhooks/{webhook['id']}"
    asked = house.post(f"{path}/actions/test", tenant.key)
    assert asked.status_code == 202
    delivery = asked.json()
    assert (delivery["event_type"], delivery["status"]) == ("webhook.ping.v1", "pending")
    assert house.get(f"{path}/deliveries/{delivery['id']}", tenant.key).json() == delivery
    house.request("PATCH", path, tenant.key, json={"enabled": False})
    assert (
        house.get(f"{path}/deliveries/{delivery['id']}", tenant.key).json()["status"] == "dropped"
    )
    assert house.post(f"{path}/actions/test", tenant.key).status_code == 409


def test_deliveries_are_filtered_and_sent_again(house: House) -> None:
    tenant = house.tenant()
    webhook, other = made(house, tenant), made(house, tenant)
    path = f"{tenant.path}/webhooks/{webhook['id']}"
    failed, dropped, succeeded = (
        delivered(house, webhook, status, f"{status}.it.v1")
        for status in ("failed", "dropped", "succeeded")
    )
    found = house.get(f"{path}/deliveries", tenant.key).json()["items"]
    assert [one["id"] for one in found] == [succeeded, dropped, failed]
    of_one = house.get(f"{path}/deliveries?event_type=failed.it.v1", tenant.key).json()["items"]
    assert [one["id"] for one in of_one] == [failed]
    foreign = f"{tenant.path}/webhooks/{other['id']}/deliveries/{failed}"
    assert house.get(foreign, tenant.key).status_code == 404
    act = f"{path}/actions/redeliver"
    span = {"from": "2020-01-01T00:00:00Z", "to": "2120-01-01T00:00:00Z"}
    assert house.post(act, tenant.key, json=span).json() == {"deliveries": 2}
    assert house.post(act, tenant.key, json=span).json() == {"deliveries": 0}
    whole = {**span, "include_succeeded": True}
    assert house.post(act, tenant.key, json=whole).json() == {"deliveries": 1}
    assert house.post(act, tenant.key, json={"delivery_id": failed}).status_code == 202
    pending = house.get(f"{path}/deliveries?status=pending", tenant.key).json()["items"]
    assert len(pending) == 3
    for body, pointer in (
        ({}, "/from"),
        ({"from": span["to"], "to": span["from"]}, "/to"),
        ({"delivery_id": delivered(house, other, "failed")}, "/delivery_id"),
    ):
        refused = house.post(act, tenant.key, json=body)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == pointer


def test_enabling_again_goes_on_from_now(house: House) -> None:
    tenant = house.tenant()
    webhook = made(house, tenant, enabled=False)
    house.instance(tenant)
    path = f"{tenant.path}/webhooks/{webhook['id']}"
    assert house.request("PATCH", path, tenant.key, json={"enabled": True}).status_code == 200
    with house.database.read() as db:
        lane = delivery_lanes.fetch(db, webhook["id"])
        assert lane.due is not None
        assert lane.seq == events.newest(db, tenant.org_id)[0] > 0


def test_deliveries_of_a_deleted_endpoint_are_forgotten(house: House) -> None:
    tenant = house.tenant()
    webhook, kept = made(house, tenant), made(house, tenant)
    gone, stays = delivered(house, webhook, "pending"), delivered(house, kept, "pending")
    house.request("DELETE", f"{tenant.path}/webhooks/{webhook['id']}", tenant.key)
    with house.database.write() as db:
        webhook_deliveries.forget_orphans(db, 1_000)
        assert db.get(WebhookDelivery, gone) is None
        assert db.get(WebhookDelivery, stays) is not None


def test_a_developer_sees_none(house: House) -> None:
    tenant = house.tenant()
    developer = house.member(tenant.org_id, "developer")
    refused = house.get(f"{tenant.path}/webhooks", developer.session)
    assert (refused.status_code, refused.json()["code"]) == (403, "permission_missing")
    auditor = house.member(tenant.org_id, "auditor")
    assert house.get(f"{tenant.path}/webhooks", auditor.session).status_code == 200
