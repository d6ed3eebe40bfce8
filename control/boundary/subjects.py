"""The records that a path names: how each is found, and within which other.

Each path parameter says in the document what record it names (`x-record`). The boundary finds it
before the handler runs, and the handler is given the record in place of the id.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from control.boundary.authorization import authorize_for
from control.policy.approvals import seen_in
from specserver.binding import argument_name
from storage.access import (
    api_keys,
    enterprises,
    invites,
    memberships,
    passkeys,
    projects,
    sessions,
    teams,
)
from storage.access.scopes import RecordPlace
from storage.data import backups, migrations, restores
from storage.errors import RecordNotFound
from storage.events import alerts, siem_deliveries, webhook_deliveries, webhook_endpoints
from storage.instances import approvals, instances
from storage.network import domains
from storage.roles import roles, service_accounts, support_grants, workload_identities
from storage.sso import connections as sso_connections
from storage.sso import domains as sso_domains
from storage.sso import scim_groups, scim_tokens

if TYPE_CHECKING:  # a call has a rule, and a rule its subjects
    from control.boundary.call import Call

ORG: Final = "org"
CALLER: Final = "caller"
NONE: Final = "none"
READING: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

Records: TypeAlias = dict[str, Any]


class Find(Protocol):
    def __call__(self, call: "Call", found: Records, wanted: str, /, *, lock: bool) -> Any:
        """The record of the id `wanted`; `found` is what the path has named before it.

        `lock` holds its row until the commit. Raises NotFound, the one of storage.
        """


def _own_place(_call: "Call", record: Any) -> RecordPlace:
    place: RecordPlace = record.place
    return place


def _place_of_alert(call: "Call", alert: alerts.Alert) -> RecordPlace | None:
    return alerts.place(call.db, alert)


@dataclass(frozen=True)
class RecordKind:
    """Of a record. `within` is what it is found in: the org, the caller, or another record.

    One that belongs to a team is there for whoever has the permission `shown_by` in that team.
    """

    within: str
    find: Find
    shown_by: str | None = None
    place: "Callable[[Call, Any], RecordPlace | None]" = _own_place


def _project(call: "Call", _found: Records, project_id: str, *, lock: bool) -> projects.Project:
    return projects.fetch(call.db, _org_id(call), project_id, lock=lock)


def _instance(call: "Call", _found: Records, instance_id: str, *, lock: bool) -> instances.Instance:
    return instances.fetch(call.db, _org_id(call), instance_id, lock=lock)


def _team(call: "Call", _found: Records, team_id: str, *, lock: bool) -> teams.Team:
    return teams.fetch(call.db, _org_id(call), team_id, lock=lock)


def _member(call: "Call", _found: Records, user_id: str, *, lock: bool) -> memberships.Membership:
    return memberships.fetch(call.db, _org_id(call), user_id, lock=lock)


def _person(call: "Call", _found: Records, user_id: str, *, lock: bool) -> memberships.Membership:
    return memberships.fetch_person(call.db, _org_id(call), user_id, lock=lock)


def _custom_role(call: "Call", _found: Records, role_id: str, *, lock: bool) -> roles.CustomRole:
    return roles.fetch(call.db, _org_id(call), role_id, lock=lock)


def _role_assignment(
    call: "Call", found: Records, assignment_id: str, *, lock: bool
) -> roles.RoleAssignment:
    return roles.fetch_assignment(call.db, found["custom_role"], assignment_id, lock=lock)


def _service_account(
    call: "Call", _found: Records, account_id: str, *, lock: bool
) -> service_accounts.ServiceAccount:
    return service_accounts.fetch(call.db, _org_id(call), account_id, lock=lock)


def _workload_identity(
    call: "Call", found: Records, identity_id: str, *, lock: bool
) -> workload_identities.WorkloadIdentity:
    return workload_identities.fetch(call.db, found["service_account"], identity_id, lock=lock)


def _support_grant(
    call: "Call", _found: Records, grant_id: str, *, lock: bool
) -> support_grants.SupportGrant:
    return support_grants.fetch(call.db, _org_id(call), grant_id, lock=lock)


def _domain(call: "Call", found: Records, domain_id: str, *, lock: bool) -> domains.Domain:
    return domains.fetch(call.db, found["instance"], domain_id, lock=lock)


def _sso_domain(
    call: "Call", _found: Records, domain_id: str, *, lock: bool
) -> sso_domains.SsoDomain:
    return sso_domains.fetch(call.db, _org_id(call), domain_id, lock=lock)


def _sso_connection(
    call: "Call", _found: Records, connection_id: str, *, lock: bool
) -> sso_connections.SsoConnection:
    return sso_connections.fetch(call.db, _org_id(call), connection_id, lock=lock)


def _backup(call: "Call", found: Records, backup_id: str, *, lock: bool) -> backups.Backup:
    return backups.fetch(call.db, found["instance"], backup_id, lock=lock)


def _restore(call: "Call", found: Records, restore_id: str, *, lock: bool) -> restores.Restore:
    return restores.fetch(call.db, found["instance"], restore_id, lock=lock)


def _migration(
    call: "Call", found: Records, migration_id: str, *, lock: bool
) -> migrations.Migration:
    return migrations.fetch(call.db, found["instance"], migration_id, lock=lock)


def _api_key(call: "Call", _found: Records, key_id: str, *, lock: bool) -> api_keys.ApiKey:
    return api_keys.fetch(call.db, _org_id(call), key_id, lock=lock)


def _invite(call: "Call", _found: Records, invite_id: str, *, lock: bool) -> invites.Invite:
    return invites.fetch(call.db, _org_id(call), invite_id, call.now, lock=lock)


def _subsidiary(
    call: "Call", _found: Records, subsidiary_id: str, *, lock: bool
) -> enterprises.EnterpriseOrg:
    return enterprises.fetch_subsidiary(call.db, _org_id(call), subsidiary_id, lock=lock)


def _alert(call: "Call", _found: Records, alert_id: str, *, lock: bool) -> alerts.Alert:
    return alerts.fetch(call.db, _org_id(call), alert_id, lock=lock)


def _siem_delivery(
    call: "Call", _found: Records, delivery_id: str, *, lock: bool
) -> siem_deliveries.SiemDelivery:
    return siem_deliveries.fetch(call.db, _org_id(call), delivery_id, lock=lock)


def _webhook(
    call: "Call", _found: Records, webhook_id: str, *, lock: bool
) -> webhook_endpoints.WebhookEndpoint:
    return webhook_endpoints.fetch(call.db, _org_id(call), webhook_id, lock=lock)


def _webhook_delivery(
    call: "Call", found: Records, delivery_id: str, *, lock: bool
) -> webhook_deliveries.WebhookDelivery:
    return webhook_deliveries.fetch(call.db, found["webhook"], delivery_id, lock=lock)


def _approval(call: "Call", _found: Records, approval_id: str, *, lock: bool) -> approvals.Approval:
    """There for whoever asked for it, too, where they may not decide."""
    assert call.caller is not None
    found = approvals.fetch(call.db, _org_id(call), approval_id, lock=lock)
    seen = seen_in(call.caller.rights)
    if seen is None or found.team_id in seen or found.requester_id == call.caller.user.id:
        return found
    raise RecordNotFound("approval not found")


def _scim_group(
    call: "Call", _found: Records, group_id: str, *, lock: bool
) -> scim_groups.ScimGroup:
    return scim_groups.fetch(call.db, _org_id(call), group_id, lock=lock)


def _scim_token(
    call: "Call", _found: Records, token_id: str, *, lock: bool
) -> scim_tokens.ScimToken:
    return scim_tokens.fetch(call.db, _org_id(call), token_id, lock=lock)


def _session(call: "Call", _found: Records, session_id: str, *, lock: bool) -> sessions.UserSession:
    assert call.caller is not None
    own = call.caller.session.id if call.caller.session else ""
    wanted = own if session_id == "current" else session_id
    user_id, held_to = call.caller.user.id, call.caller.held_to
    return sessions.fetch(call.db, user_id, wanted, call.now, held_to=held_to, lock=lock)


def _passkey(call: "Call", _found: Records, passkey_id: str, *, lock: bool) -> passkeys.Passkey:
    assert call.caller is not None
    return passkeys.fetch(call.db, call.caller.user.id, passkey_id, lock=lock)


def _org_id(call: "Call") -> str:
    assert call.org is not None, "held to by `faults`"
    return call.org.id


KINDS: Final[Mapping[str, RecordKind]] = {
    "team": RecordKind(ORG, _team, shown_by="teams:read"),
    "member": RecordKind(ORG, _member),
    "person": RecordKind(ORG, _person),
    "custom_role": RecordKind(ORG, _custom_role),
    "role_assignment": RecordKind("custom_role", _role_assignment),
    "service_account": RecordKind(ORG, _service_account),
    "workload_identity": RecordKind("service_account", _workload_identity),
    "support_grant": RecordKind(ORG, _support_grant),
    "project": RecordKind(ORG, _project, shown_by="projects:read"),
    "instance": RecordKind(ORG, _instance, shown_by="instances:read"),
    "domain": RecordKind("instance", _domain),
    "sso_connection": RecordKind(ORG, _sso_connection),
    "sso_domain": RecordKind(ORG, _sso_domain),
    "scim_group": RecordKind(ORG, _scim_group),
    "scim_token": RecordKind(ORG, _scim_token),
    "backup": RecordKind("instance", _backup),
    "restore": RecordKind("instance", _restore),
    "migration": RecordKind("instance", _migration),
    "api_key": RecordKind(ORG, _api_key),
    "invite": RecordKind(ORG, _invite),
    "alert": RecordKind(ORG, _alert, shown_by="alerts:read", place=_place_of_alert),
    "approval": RecordKind(ORG, _approval, shown_by="approvals:read"),
    "siem_delivery": RecordKind(ORG, _siem_delivery),
    "webhook": RecordKind(ORG, _webhook),
    "webhook_delivery": RecordKind("webhook", _webhook_delivery),
    "subsidiary": RecordKind(ORG, _subsidiary),
    "session": RecordKind(CALLER, _session),
    "passkey": RecordKind(CALLER, _passkey),
}
"""A new kind of record has its line here; storage says what is not found."""


@dataclass(frozen=True)
class Subject:
    """A record of an operation's path, given to the handler in place of `parameter`."""

    name: str
    parameter: str
    lock: bool
    kind: RecordKind


def subjects_of(path: str, method: str, document: Mapping[str, Any]) -> tuple[Subject, ...]:
    """In the order of the path; of a document without `faults`."""
    named = [
        (one["x-record"], argument_name(one["name"]))
        for one in _parameters(path, document)
        if one["x-record"] not in (NONE, ORG)
    ]
    locked = _locked(method, document, [name for name, _ in named])
    return tuple(Subject(name, parameter, name in locked, KINDS[name]) for name, parameter in named)


def resolve(call: "Call", *, lock: bool = True) -> Records:
    """The records by the names of their kinds.

    Raises NotFound, one for all that is not there for this caller, and Forbidden for a record that
    they may see and not use so.
    """
    found: Records = {}
    for one in call.rule.subjects:
        wanted = call.exchange.arguments[one.parameter]
        record = one.kind.find(call, found, wanted, lock=lock and one.lock)
        if one.kind.shown_by is not None and call.caller is not None:
            place = one.kind.place(call, record)
            authorize_for(call.rule.permission, call.caller, place, one.kind.shown_by)
        found[one.name] = record
    return found


def faults(path: str, method: str, document: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the records that an operation's path names."""
    known = {CALLER}
    named: list[str] = []
    described = {one["name"] for one in _parameters(path, document)}
    for name in set(re.findall(r"{(\w+)}", path)) - described:
        yield f"{{{name}}} is not among its parameters"
    for one in _parameters(path, document):
        record = one.get("x-record")
        if record is None:
            yield f"{{{one['name']}}} does not say in x-record which record it names"
        elif record == NONE and not one.get("x-record-reason"):
            yield f"{{{one['name']}}} names no record, but x-record-reason does not say why"
        elif record in KINDS and KINDS[record].within not in known:
            yield f"{record} is found within {KINDS[record].within}, which the path does not name"
        elif record not in {NONE, ORG, *KINDS}:
            yield f"x-record is {record!r}, not one of {', '.join((ORG, *KINDS, NONE))}"
        else:
            known.add(record)
            named += [record] if record in KINDS else []
    unknown = set(document.get("x-locks") or ()) - set(named)
    if unknown:
        yield f"x-locks names {', '.join(sorted(unknown))}, which the path does not"
    if "x-locks" in document and (method in READING or document.get("x-done-by")):
        yield "x-locks is for changes that a transaction makes"


def _locked(method: str, document: Mapping[str, Any], named: list[str]) -> list[str]:
    """What a change is about is held until the commit, unless `x-locks` says otherwise."""
    if method in READING or document.get("x-done-by"):
        return []
    return list(document.get("x-locks", named[-1:]))


def _parameters(path: str, document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of the path, in its order."""
    described = [one for one in document.get("parameters", ()) if one["in"] == "path"]
    return sorted(described, key=lambda one: path.index(f"{{{one['name']}}}"))
