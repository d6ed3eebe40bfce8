"""One row per operation of the document: a request of it that is right, made of its examples."""

from dataclasses import dataclass
from typing import Any

import httpx
from sqlalchemy import select

from contract_tests.api.harness import House, Tenant
from contract_tests.api.oracle import document
from contract_tests.workflows.known import take_turn
from control.workflows.instances.subjects import publish_failed
from menagerie import credit_grants
from specserver import Operation
from storage import identifiers
from storage.access import enterprises
from storage.access.passkeys import Passkey
from storage.events.alerts import Alert
from storage.events.audit_publications import PublishedHead
from storage.instances.instances import Instance

DOCUMENT = document()
OPERATIONS = [
    Operation(path, method, described) for path, method, described in DOCUMENT.operations()
]
IDS = [operation.id for operation in OPERATIONS]
NEVER = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
"""The rest of an id that nothing ever had."""
NO_INVITE = "mi_" + "0" * 49
"""The token of no invite."""
NO_INVOICE = f"invoice_{NEVER}.1.forged"
"""The token of a link to no invoice."""


@dataclass(frozen=True)
class Estate:
    """A tenant with one of everything that an operation's path can name."""

    tenant: Tenant
    instance_id: str
    domain_id: str = f"dom_{NEVER}"
    backup_id: str = f"bkp_{NEVER}"
    restore_id: str = f"rst_{NEVER}"
    migration_id: str = f"mig_{NEVER}"
    alert_id: str = f"alert_{NEVER}"
    user_id: str = f"usr_{NEVER}"
    invite_id: str = f"inv_{NEVER}"
    team_id: str = f"team_{NEVER}"
    role_id: str = f"role_{NEVER}"
    assignment_id: str = f"asg_{NEVER}"
    service_account_id: str = f"sa_{NEVER}"
    workload_identity_id: str = f"wid_{NEVER}"
    grant_id: str = f"sg_{NEVER}"
    approval_id: str = f"apr_{NEVER}"
    subsidiary_id: str = f"org_{NEVER}"
    passkey_id: str = f"pk_{NEVER}"
    webhook_id: str = f"wh_{NEVER}"
    delivery_id: str = f"whd_{NEVER}"
    siem_delivery_id: str = f"siem_{NEVER}"
    queue_name: str = "orders"

    @property
    def ids(self) -> dict[str, str]:
        return {
            "org_id": self.tenant.org_id,
            "team_id": self.team_id,
            "project_id": self.tenant.project_id,
            "instance_id": self.instance_id,
            "key_id": self.tenant.key_id,
            "domain_id": self.domain_id,
            "backup_id": self.backup_id,
            "restore_id": self.restore_id,
            "migration_id": self.migration_id,
            "alert_id": self.alert_id,
            "approval_id": self.approval_id,
            "user_id": self.user_id,
            "invite_id": self.invite_id,
            "role": "developer",
            "role_id": self.role_id,
            "assignment_id": self.assignment_id,
            "service_account_id": self.service_account_id,
            "workload_identity_id": self.workload_identity_id,
            "grant_id": self.grant_id,
            "operation": "instances.get",
            "subsidiary_id": self.subsidiary_id,
            "token": NO_INVITE,
            "invoice_token": NO_INVOICE,
            "queue_name": self.queue_name,
            "session_id": "current",
            "passkey_id": self.passkey_id,
            "siem_delivery_id": self.siem_delivery_id,
            "action": "disable",
            "webhook_id": self.webhook_id,
            "delivery_id": self.delivery_id,
        }


NOBODY = {
    "org_id": f"org_{NEVER}",
    "team_id": f"team_{NEVER}",
    "project_id": f"proj_{NEVER}",
    "instance_id": f"inst_{NEVER}",
    "key_id": f"key_{NEVER}",
    "domain_id": f"dom_{NEVER}",
    "backup_id": f"bkp_{NEVER}",
    "restore_id": f"rst_{NEVER}",
    "migration_id": f"mig_{NEVER}",
    "alert_id": f"alert_{NEVER}",
    "approval_id": f"apr_{NEVER}",
    "user_id": f"usr_{NEVER}",
    "invite_id": f"inv_{NEVER}",
    "role": "emperor",
    "role_id": f"role_{NEVER}",
    "assignment_id": f"asg_{NEVER}",
    "service_account_id": f"sa_{NEVER}",
    "workload_identity_id": f"wid_{NEVER}",
    "grant_id": f"sg_{NEVER}",
    "operation": "instances.get",
    "subsidiary_id": f"org_{NEVER}",
    "token": NO_INVITE,
    "invoice_token": NO_INVOICE,
    "queue_name": "never",
    "session_id": f"ses_{NEVER}",
    "passkey_id": f"pk_{NEVER}",
    "siem_delivery_id": f"siem_{NEVER}",
    "action": "disable",
    "webhook_id": f"wh_{NEVER}",
    "delivery_id": f"whd_{NEVER}",
}


def estate(house: House, name: str = "Estate", *, plan: str = "team") -> Estate:
    tenant = house.tenant(name, plan=plan)
    instance_id = house.instance(tenant)
    domain_id = domain(house, tenant, instance_id)
    copies = restored(house, tenant, instance_id)
    migration_id = migrated(house, tenant, instance_id)
    alert_id = alerted(house, instance_id)
    with_published_head(house, tenant)
    with_credit(house, tenant, name)
    user_id = house.member(tenant.org_id, "auditor").id
    invite_id = invited(house, tenant, name)
    team_id = led(house, tenant, name, user_id)
    roles = with_roles(house, tenant, name, user_id)
    approval_id = waiting(house, tenant, name, team_id)
    ids = (*copies, migration_id, alert_id, user_id, invite_id, team_id, *roles, approval_id)
    ids = (*ids, attached(house, tenant, name), with_passkey(house, tenant))
    ids = (*ids, *with_webhook(house, tenant, name), sent_to_siem(house, tenant, name))
    return Estate(tenant, instance_id, domain_id, *ids)


def with_credit(house: House, tenant: Tenant, name: str) -> None:
    """A credit for this reason, and an application for one with it."""
    body = {"programme": "education", "statement": name}
    made = house.post(f"{tenant.path}/programmes/applications", tenant.key, json=body)
    assert made.status_code == 201, made.text
    org = tenant.org_id
    credit_grants.grant(house.services, org, "5", reason=name, months=None, reference=None)


def with_passkey(house: House, tenant: Tenant) -> str:
    """The id of a passkey of the owner, whose sessions are asked for a second factor from then on.

    It is not counted, so that tests without a second factor are about the same people.
    """
    with house.database.write() as db:
        made = Passkey(
            id=identifiers.new("pk_"),
            user_id=tenant.owner.id,
            name="Phone",
            credential_id=identifiers.new("made-up-"),
            public_key=b"none",
            sign_count=0,
            is_backup_eligible=True,
            is_backed_up=False,
        )
        db.add(made)
        return made.id


def sent_to_siem(house: House, tenant: Tenant, name: str) -> str:
    """The id of a SIEM delivery, to a bucket with this name in its prefix."""
    target = {"kind": "s3", "bucket": "audit", "region": "eu-central-1"}
    target |= {"prefix": f"{'-'.join(name.split())}/"}
    secrets = {"access_key_id": "AKIA", "secret_access_key": "secret"}
    path = f"{tenant.path}/audit/siem-deliveries"
    made = house.post(path, tenant.key, json={"target": {**target, **secrets}})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def with_webhook(house: House, tenant: Tenant, name: str) -> tuple[str, str]:
    """The ids of a webhook endpoint with this description, and of a test of it."""
    body = {"url": "https://hooks.example.com/", "events": ["*"], "description": name}
    made = house.post(f"{tenant.path}/webhooks", tenant.key, json=body)
    assert made.status_code == 201, made.text
    tested = house.post(f"{made.headers['location']}/actions/test", tenant.key)
    return str(made.json()["id"]), str(tested.json()["id"])


def invited(house: House, tenant: Tenant, name: str) -> str:
    """The id of a pending invite, to an address with this name in it."""
    email = f"{'-'.join(name.lower().split())}.{identifiers.new('').lower()}@example.com"
    body = {"email": email, "role": "auditor"}
    made = house.post(f"{tenant.path}/invites", tenant.key, json=body)
    house.settle()
    return str(made.json()["id"])


def led(house: House, tenant: Tenant, name: str, user_id: str) -> str:
    """The id of a team that the owner of the tenant leads, and the user is in."""
    made = house.post(f"{tenant.path}/teams", tenant.key, json={"name": name})
    assert made.status_code == 201, made.text
    for each, role in ((tenant.owner.id, "admin"), (user_id, "viewer")):
        path = f"{made.headers['location']}/members/{each}"
        assert house.request("PUT", path, tenant.key, json={"role": role}).is_success
    return str(made.json()["id"])


def with_roles(house: House, tenant: Tenant, name: str, user_id: str) -> list[str]:
    """The ids of a custom role that the user has, of that, of a service account and a grant.

    Before the grant comes what the account trusts. The user has a role in the project, too.
    """
    held = ["instances:read"]
    key, path = tenant.key, tenant.path
    role = house.post(f"{path}/roles", key, json={"name": name, "permissions": held}).json()
    account = house.post(f"{path}/service-accounts", key, json={"name": name}).json()
    made = [
        role,
        house.post(f"{path}/roles/{role['id']}/assignments", key, json={"user_id": user_id}).json(),
        account,
        trusted(house, tenant, account["id"], name=name),
        house.post(
            f"{path}/support-grants", key, json={"permissions": held, "reason": name}
        ).json(),
    ]
    in_project = f"{path}/projects/{tenant.project_id}/members/{user_id}"
    assert house.request("PUT", in_project, key, json={"role": "viewer"}).is_success
    return [str(one["id"]) for one in made]


def waiting(house: House, tenant: Tenant, name: str, team_id: str) -> str:
    """The id of an order for the team that waits for approval, asked for by somebody else."""
    path = f"{tenant.path}/teams/{team_id}"
    policy = {"approval_policy": {"every_order": True}}
    assert house.request("PATCH", path, tenant.key, json=policy).is_success
    operator = house.member(tenant.org_id, "member")
    role = {"role": "operator"}
    put = house.request("PUT", f"{path}/members/{operator.id}", tenant.key, json=role)
    assert put.is_success
    body = {"name": "Waiting", "team_id": team_id}
    made = house.post(f"{tenant.path}/projects", tenant.key, json=body)
    orders = f"{made.headers['location']}/instances"
    order = {"engine": "duckdb", "size": "f0", "name": "-".join(name.lower().split())}
    asked = house.post(orders, operator.session, json=order)
    assert asked.status_code == 202, asked.text
    house.settle()
    return str(asked.json()["id"])


def attached(house: House, tenant: Tenant, name: str) -> str:
    """The id of an organization with this name that the tenant's is the parent of."""
    other = house.tenant(name)
    with house.database.write() as db:
        enterprises.found(db, tenant.org_id, {})
        return enterprises.attach(db, tenant.org_id, other.org_id, tenant.owner.id).org_id


def trusted(house: House, tenant: Tenant, account_id: str, **body: str) -> dict[str, Any]:
    """What a service account trusts now: jobs of the house's own issuer."""
    claims = house.issuer.claims()
    trust = {"name": "jobs", "issuer": claims["iss"], "audience": claims["aud"]}
    path = f"{tenant.path}/service-accounts/{account_id}/workload-identities"
    sent = {**trust, "subject": claims["sub"], **body}
    made = house.post(path, tenant.key, json=sent)
    assert made.status_code == 201, made.text
    house.settle()
    found: dict[str, Any] = made.json()
    return found


def domain(house: House, tenant: Tenant, instance_id: str) -> str:
    """The id of a domain of the instance."""
    path = f"{tenant.path}/instances/{instance_id}/domains"
    body = {"hostname": f"{instance_id[-8:].lower()}.example.com"}
    return str(house.post(path, tenant.key, json=body).json()["id"])


def restored(house: House, tenant: Tenant, instance_id: str) -> tuple[str, str]:
    """The ids of a manual backup of the instance, and of a restore of it into a new one."""
    path = f"{tenant.path}/instances/{instance_id}/backups"
    label = f"of {tenant.org_id}"
    backup_id = str(house.post(path, tenant.key, json={"label": label}).json()["id"])
    house.settle()
    made = house.post(f"{path}/{backup_id}/actions/restore", tenant.key, json={})
    house.settle()
    return backup_id, str(made.json()["id"])


def alerted(house: House, instance_id: str) -> str:
    """The id of an alert about the instance."""
    with house.database.write() as db:
        instance = db.get_one(Instance, instance_id)
        publish_failed(db, instance, "resize", "there is no room")
    with house.database.read() as db:
        found = select(Alert.id).where(Alert.instance_id == instance_id)
        return db.scalars(found.order_by(Alert.id.desc())).first() or ""


def with_published_head(house: House, tenant: Tenant) -> None:
    """Of the organization's audit log, as far as its list is concerned."""
    with house.database.write() as db:
        told = {"seq": 1, "hash": "0" * 64, "signature": "x" * 86, "public_key": "x" * 43}
        org_id, made = tenant.org_id, identifiers.new("ahd_")
        head = PublishedHead(id=made, org_id=org_id, chain=org_id, **told)
        head.published_at = house.database.now(db)
        db.add(head)


def migrated(house: House, tenant: Tenant, instance_id: str) -> str:
    """The id of a migration into the instance that is completed."""
    migration_id = migrating(house, tenant, instance_id)
    house.cell.migrations(instance_id).becomes(migration_id, status="completed")
    watch(house)
    return migration_id


def migrating(house: House, tenant: Tenant, instance_id: str, **body: Any) -> str:
    """The id of a migration into the instance that waits for its source."""
    path = f"{tenant.path}/instances/{instance_id}/migrations"
    made = house.post(path, tenant.key, json={"source": {"kind": "upload"}, **body})
    assert made.status_code == 201, made.text
    house.settle()
    return str(made.json()["id"])


def watch(house: House) -> None:
    """Take over what cells say of migrations."""
    with house.database.write() as db:
        take_turn(db, "migrations.watch")
    house.settle()


def path_of(operation: Operation, ids: dict[str, str]) -> str:
    """Raises KeyError for a parameter that no estate has: then the operation needs a row."""
    return operation.path.format_map(ids)


def body_of(operation: Operation) -> Any:
    """The first example of the request's body; None where there is no body."""
    content = operation.document.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    if "example" in content:
        return content["example"]
    return next(iter(content["examples"].values()))["value"]


def send(
    house: House,
    operation: Operation,
    ids: dict[str, str],
    token: str | None,
    body: Any = ...,
) -> httpx.Response:
    """The operation with these ids in its path, and its example as the body unless one is given."""
    chosen = body_of(operation) if body is ... else body
    options: dict[str, Any] = {} if chosen is None else {"json": chosen}
    if asked := query_of(operation, ids):
        options["params"] = asked
    return house.request(operation.method, path_of(operation, ids), token, **options)


def query_of(operation: Operation, ids: dict[str, str]) -> dict[str, str]:
    """What it needs in its query."""
    described = operation.document.get("parameters", ())
    needed = [one["name"] for one in described if one["in"] == "query" and one.get("required")]
    return {name: ids[name] for name in needed}


def nested(operation: Operation) -> bool:
    """Whether the path names something inside the organization."""
    described = operation.document.get("parameters", ())
    return any(one.get("x-record", "none") not in ("none", "org", "session") for one in described)


def is_problem(answer: httpx.Response, status: int, code: str | None = None) -> None:
    """Asserts a whole RFC 9457 problem of this status."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert problem["type"] == f"urn:menagerie:problem:{problem['code']}"
    assert problem["title"]
    assert problem["detail"]
    assert code is None or problem["code"] == code
