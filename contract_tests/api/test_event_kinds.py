"""Every kind of event that the document describes is published here, and as it says."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from sqlalchemy import select

from contract_tests import published
from contract_tests.api import leaks
from contract_tests.api.billing.billing_acts import ACTS as OF_BILLING
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import DOCUMENT, migrating, watch
from contract_tests.api.sso.sso_acts import ACTS as OF_SSO
from contract_tests.workflows import siem
from contract_tests.workflows.fake_backups import ARCHIVING, COPIES
from contract_tests.workflows.fake_migrations import checked, compared, copied, moment
from contract_tests.workflows.known import take_turn
from control.delivery.receiver_urls import Reach
from control.events.kinds import kinds_of
from control.siem.lane import Sent, SiemLanes
from control.webhooks import endings
from control.webhooks.retries import WebhookRetries
from storage.access import teams
from storage.events import delivery_lanes
from storage.events.events import Event
from storage.events.siem_deliveries import StreamPositions

Act = Callable[[House, Tenant, str], None]
KINDS = kinds_of(json.dumps(DOCUMENT.raw).encode())


def asked(method: str, rest: str, **body: str) -> Act:
    """An owner's request of an instance that runs, and the work that follows."""

    def act(house: House, tenant: Tenant, instance_id: str) -> None:
        owner = house.session(tenant.owner.id, mfa=True)
        path = f"{tenant.path}/instances/{instance_id}{rest}"
        options = {"json": body} if body else {}
        assert house.request(method, path, owner, **options).is_success
        house.settle()

    return act


def observed(**of_cell: object) -> Act:
    """What the cell shows of an instance that ran, and the control plane looks at."""

    def act(house: House, _tenant: Tenant, instance_id: str) -> None:
        house.cell.becomes(instance_id, **of_cell)
        with house.database.write() as db:
            take_turn(db, "reconcile")
        house.settle()

    return act


def paused_and(then: Act) -> Act:
    def act(house: House, tenant: Tenant, instance_id: str) -> None:
        asked("POST", "/actions/pause")(house, tenant, instance_id)
        then(house, tenant, instance_id)

    return act


def backed_up(then: Act) -> Act:
    def act(house: House, tenant: Tenant, instance_id: str) -> None:
        asked("POST", "/backups", label="before")(house, tenant, instance_id)
        then(house, tenant, instance_id)

    return act


def restored(**body: str) -> Act:
    """Of the instance's backup."""

    def act(house: House, tenant: Tenant, instance_id: str) -> None:
        path = f"{tenant.path}/instances/{instance_id}"
        listed = house.get(f"{path}/backups", tenant.key).json()["items"]
        name = house.get(path, tenant.key).json()["name"]
        confirmed = {"confirm_name": name} if body["mode"] == "in_place" else {}
        rest = f"/backups/{listed[0]['id']}/actions/restore"
        asked("POST", rest, **body, **confirmed)(house, tenant, instance_id)

    return act


def lost(house: House, tenant: Tenant, instance_id: str) -> None:
    """A backup of what the cell no longer has."""
    house.cell.forget(instance_id)
    asked("POST", "/backups", label="too late")(house, tenant, instance_id)


def migrated(**told: Any) -> Act:
    """What the cell says of a migration into the instance, after it was asked for."""

    def act(house: House, tenant: Tenant, instance_id: str) -> None:
        migration_id = migrating(house, tenant, instance_id)
        house.cell.migrations(instance_id).becomes(migration_id, **told)
        watch(house)

    return act


def archiving(*, late: bool = False, lost: bool = False) -> Act:
    """What a cell tells of archived WAL."""
    at = "2030-01-01T00:00:00.000Z"
    gap = {"at": at, "reason": "a segment is missing", "restorable_until": at}
    told = {"status": "late" if late else "archiving", "gap": gap if lost else None}
    return observed(archiving={**ARCHIVING, "wanted": True, "needs_base": lost, **told})


def late_and(then: Act) -> Act:
    def act(house: House, tenant: Tenant, instance_id: str) -> None:
        archiving(late=True)(house, tenant, instance_id)
        then(house, tenant, instance_id)

    return act


def copying(*, late: bool = False) -> Act:
    """What the cell tells of copies of backups."""
    status = {"status": "late", "reason": "it is full", "waiting": 2} if late else {}
    return observed(copies={**COPIES, "wanted": True, "status": "current", **status})


def late_copies_and(then: Act) -> Act:
    def act(house: House, tenant: Tenant, instance_id: str) -> None:
        copying(late=True)(house, tenant, instance_id)
        then(house, tenant, instance_id)

    return act


def member_removed(house: House, tenant: Tenant, _instance_id: str) -> None:
    path = f"{tenant.path}/members/{house.member(tenant.org_id, 'member').id}"
    assert house.request("DELETE", path, tenant.key).is_success


def invited(house: House, tenant: Tenant, _instance_id: str) -> None:
    body = {"email": f"{tenant.org_id.lower()}@example.com", "role": "member"}
    assert house.post(f"{tenant.path}/invites", tenant.key, json=body).is_success


def ordered_for_approval(house: House, tenant: Tenant) -> str:
    """The path of an order of a member that waits."""
    everyone = f"{tenant.path}/teams/{teams.everyone_of(tenant.org_id)}"
    policy = {"approval_policy": {"every_order": True}}
    assert house.request("PATCH", everyone, tenant.key, json=policy).is_success
    path = f"{tenant.path}/projects/{tenant.project_id}/instances"
    member = house.member(tenant.org_id, "member")
    made = house.post(path, member.session, json={"engine": "duckdb", "size": "f0"})
    assert made.status_code == 202, made.text
    return str(made.headers["location"])


def waiting(house: House, tenant: Tenant, _instance_id: str) -> None:
    ordered_for_approval(house, tenant)


def decided(verb: str) -> Act:
    def act(house: House, tenant: Tenant, _instance_id: str) -> None:
        path = ordered_for_approval(house, tenant)
        body = {"reason": "so it is"}
        assert house.post(f"{path}/actions/{verb}", tenant.key, json=body).is_success

    return act


def undecided(house: House, tenant: Tenant, _instance_id: str) -> None:
    ordered_for_approval(house, tenant)
    house.pass_time(house.services.settings.approval_ttl_s)
    with house.database.write() as db:
        take_turn(db, "approvals.expire")
    house.settle()


def spent(house: House, tenant: Tenant, instance_id: str) -> None:
    """More than a budget of nothing."""
    team_id = teams.everyone_of(tenant.org_id)
    asked("PATCH", "", size="s0")(house, tenant, instance_id)
    budget = {"monthly_budget_cents": 0}
    path = f"{tenant.path}/teams/{team_id}"
    assert house.request("PATCH", path, tenant.key, json=budget).is_success
    house.pass_time(60)
    with house.database.write() as db:
        take_turn(db, "budgets.watch")
    house.settle()


def baa_signed(house: House, tenant: Tenant, _instance_id: str) -> None:
    house.change_org(tenant.org_id, plan="enterprise")
    owner = house.session(tenant.owner.id, mfa=True)
    body = {"version": house.services.settings.baa.version}
    assert house.post(f"{tenant.path}/compliance/baa/sign", owner, json=body).is_success


def key_leaked(house: House, tenant: Tenant, _instance_id: str) -> None:
    before = house.services.settings
    leaks.trust(house)
    assert leaks.report(house, leaks.match(tenant.key)).is_success
    object.__setattr__(house.services, "settings", before)


def watched(house: House) -> None:
    with house.database.write() as db:
        take_turn(db, "alerts.evaluate")
    house.settle()


def much_used(house: House, _tenant: Tenant, _instance_id: str) -> None:
    """Eight of ten projects."""
    tenant = house.tenant()
    house.change_org(tenant.org_id, plan="solo")
    for number in range(7):
        body = {"name": f"Project {number}"}
        assert house.post(f"{tenant.path}/projects", tenant.key, json=body).is_success
    watched(house)


def all_used(house: House, tenant: Tenant, _instance_id: str) -> None:
    house.change_org(tenant.org_id, plan="free")
    house.instance(tenant)
    watched(house)


def sent_to_siem(house: House, tenant: Tenant) -> str:
    """The id of a SIEM delivery."""
    target = {"kind": "webhook", "url": "https://siem.example.com/"}
    made = house.post(f"{tenant.path}/audit/siem-deliveries", tenant.key, json={"target": target})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def interrupted(house: House, tenant: Tenant, _instance_id: str) -> None:
    answered(house, sent_to_siem(house, tenant), "the target answered 503")


def resumed(house: House, tenant: Tenant, _instance_id: str) -> None:
    delivery_id = sent_to_siem(house, tenant)
    answered(house, delivery_id, "the target answered 503")
    answered(house, delivery_id, None)


def answered(house: House, delivery_id: str, error: str | None) -> None:
    """What came of two batches, a quarter of an hour apart."""
    lanes = SiemLanes(house.services.sealer, Reach())
    sent = Sent(StreamPositions(0, 0, 0), is_full=False, error=error)
    for _ in range(2):
        with house.database.write() as db:
            lanes.record(db, delivery_lanes.fetch(db, delivery_id), sent)
        house.pass_time(900)


def sent_out(house: House, tenant: Tenant, instance_id: str) -> None:
    sent_to_siem(house, tenant)
    house.cell.sends_out("0a0a0a0a-1", siem.report(instance_id))
    with house.database.write() as db:
        take_turn(db, "egress.collect")
    house.settle()


def with_webhook(house: House, tenant: Tenant) -> str:
    """The path of an endpoint."""
    body = {"url": "https://hooks.example.com/", "events": ["*"]}
    made = house.post(f"{tenant.path}/webhooks", tenant.key, json=body)
    return str(made.headers["location"])


def webhook_gone(house: House, tenant: Tenant, _instance_id: str) -> None:
    webhook_id = with_webhook(house, tenant).rpartition("/")[2]
    with house.database.write() as db:
        lane = delivery_lanes.fetch(db, webhook_id, lock=True)
        endings.end_if_due(db, house.services, lane, endings.GONE, house.database.now(db))


def webhook_tested(house: House, tenant: Tenant, _instance_id: str) -> None:
    assert house.post(f"{with_webhook(house, tenant)}/actions/test", tenant.key).is_success
    assert WebhookRetries(house.services).take(house.database, []).taken


CHECKED = checked(("warning", "the table has no primary key"))
ROTATED = {"generation": 2, "overlap_until": "2030-01-01T00:00:00.000Z"}
ACTS: dict[str, list[Act]] = {
    "instance.requested.v1": [asked("POST", "/branches", name="branch")],
    "instance.ready.v1": [asked("POST", "/branches", name="branch")],
    "instance.failed.v1": [observed(status="failed", status_reason="it crashed")],
    "instance.paused.v1": [
        asked("POST", "/actions/pause"),
        observed(status="paused", paused_by="idle"),
    ],
    "instance.resumed.v1": [
        paused_and(asked("POST", "/actions/resume")),
        paused_and(observed(status="running", paused_by=None)),
    ],
    "instance.resized.v1": [asked("PATCH", "", size="s0")],
    "instance.deleted.v1": [asked("DELETE", ""), asked("POST", "/actions/erase")],
    "instance.credentials.rotated.v1": [observed(credentials=ROTATED)],
    "backup.completed.v1": [asked("POST", "/backups", label="now")],
    "backup.failed.v1": [lost],
    "backup.archiving_interrupted.v1": [archiving(late=True), archiving(lost=True)],
    "backup.archiving_resumed.v1": [late_and(archiving())],
    "backup.copies_interrupted.v1": [copying(late=True)],
    "backup.copies_resumed.v1": [late_copies_and(copying())],
    "restore.completed.v1": [
        backed_up(restored(mode="new_instance")),
        backed_up(restored(mode="in_place")),
    ],
    "migration.preflight.v1": [migrated(status="copying", preflight=CHECKED)],
    "migration.progress.v1": [migrated(status="copying", progress=copied(100))],
    "migration.verified.v1": [migrated(status="failed", verification=compared("public.t"))],
    "migration.completed.v1": [
        migrated(status="completed"),
        migrated(status="completed", way_back_until=moment(60)),
    ],
    "migration.failed.v1": [migrated(status="failed"), migrated(status="cancelled", reason="so")],
    "approval.requested.v1": [waiting],
    "approval.decided.v1": [decided("approve"), decided("deny"), undecided],
    "api_key.suspended.v1": [key_leaked],
    "org.baa_signed.v1": [baa_signed],
    "org.member.invited.v1": [invited],
    "org.member.removed.v1": [member_removed],
    "budget.threshold.v1": [spent],
    **(OF_BILLING | OF_SSO),
    "quota.warning.v1": [much_used],
    "quota.exceeded.v1": [all_used],
    "alert.raised.v1": [lost, key_leaked, spent],
    "alert.resolved.v1": [late_and(archiving())],
    "siem_delivery.interrupted.v1": [interrupted],
    "siem_delivery.resumed.v1": [resumed],
    "usage.egress.v1": [sent_out],
    "webhook.disabled.v1": [webhook_gone],
    "webhook.ping.v1": [webhook_tested],
}


def test_every_kind_has_its_acts() -> None:
    assert set(ACTS) == set(DOCUMENT.raw["webhooks"])


@pytest.mark.parametrize("kind", ACTS)
def test_it_is_published_as_its_schema_says(house: House, kind: str) -> None:
    of_instances = []
    for act in ACTS[kind]:
        tenant = house.tenant()
        instance_id = house.instance(tenant)
        with published.checked() as found:
            act(house, tenant, instance_id)
        assert kind in found.seen
        with house.database.read() as db:
            rows = select(Event).where(Event.org_id == tenant.org_id, Event.type == kind)
            of_instances += [(one.instance_id, one.data) for one in db.scalars(rows)]
    # What the list of kinds says of streams of instances is so.
    for about, data in of_instances:
        assert about == (data["instance_id"] if KINDS[kind].about_instance else None)
    if KINDS[kind].about_instance and "streams" in KINDS[kind].sent_to:
        assert any(about for about, _ in of_instances)


@pytest.mark.parametrize("kind", ACTS)
def test_its_example_is_an_event_as_its_schema_says(kind: str) -> None:
    example = dict(KINDS[kind].example)
    with published.checked() as described:
        described.check(kind, example["data"])
    assert example["type"] == kind
    assert set(example) == {"id", "type", "time", "org_id", "data"}
    # Complete in itself: what it refers to is in it.
    assert "$ref" not in json.dumps(KINDS[kind].data_schema)
    OAS31Validator.check_schema(KINDS[kind].data_schema)
    assert OAS31Validator(KINDS[kind].data_schema).is_valid(example["data"])
    assert not OAS31Validator(KINDS[kind].data_schema).is_valid({})


def test_every_kind_of_service_is_there() -> None:
    """What the service is said to publish; `usage.egress.v1` comes with its part."""
    assert {
        *("instance.requested.v1", "instance.ready.v1", "instance.failed.v1"),
        *("instance.deleted.v1", "instance.credentials.rotated.v1", "quota.exceeded.v1"),
        *("backup.completed.v1", "backup.failed.v1", "restore.completed.v1"),
        *("migration.preflight.v1", "migration.progress.v1", "migration.verified.v1"),
        *("migration.completed.v1", "migration.failed.v1", "budget.threshold.v1"),
        *("org.member.invited.v1", "org.member.removed.v1", "org.baa_signed.v1"),
        *("approval.requested.v1", "approval.decided.v1", "quota.warning.v1"),
        *("instance.paused.v1", "instance.resumed.v1", "instance.resized.v1"),
    } <= set(KINDS)


def test_whoever_is_signed_in_reads_the_kinds(house: House) -> None:
    tenant = house.tenant()
    answer = house.get("/v1/events/kinds", tenant.key)
    assert answer.status_code == 200
    listed = {each["type"]: each for each in answer.json()["items"]}
    assert set(listed) == set(DOCUMENT.raw["webhooks"])
    paused = listed["instance.paused.v1"]
    assert paused["about_instance"]
    assert paused["sent_to"] == ["streams", "webhooks", "siem"]
    assert paused["example"]["data"]["paused_by"] == "user"
    assert not listed["approval.decided.v1"]["about_instance"]
