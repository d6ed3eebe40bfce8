"""What it means that an identity provider pushes somebody: who comes, who goes, and who is who.

A pushed person is a member of the organization as long as they are active. Their address must be in
a domain that the organization has verified: so no identity provider brings in, or takes out, the
people of another organization, and none makes accounts for addresses that are not its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from control import events
from control.access import departures, seats
from control.policy.alert_kinds import OWNER_ADDED
from control.policy.org_policy import allows_address
from control.sso.scim import held_roles
from control.sso.scim.call import ScimCall
from specserver import Conflict, Forbidden, Invalid
from storage.access import memberships, users
from storage.access.memberships import Membership
from storage.access.users import User
from storage.sso import domains, scim_groups, scim_users
from storage.sso.scim_users import ScimUser

NAME_LENGTH: Final = 100
ADDED: Final = "org.member.added.v1"
REMOVED: Final = "org.member.removed.v1"


@dataclass(frozen=True)
class Pushed:
    """What a provider says of somebody. `active`: None where it says nothing of that."""

    user_name: str
    external_id: str | None
    active: bool | None
    email: str | None
    shown_name: str
    attributes: Mapping[str, Any]


def create(call: ScimCall, pushed: Pushed) -> ScimUser:
    """A new one, with the account of their address, which is made where there is none."""
    email = _own_address(call, pushed)
    _refuse_taken_name(call, pushed.user_name)
    account = users.by_email(call.db, email)
    if account is not None and scim_users.find(call.db, call.org.id, account.id) is not None:
        raise Conflict(
            f"the account of {email} is provisioned by another user already", code="conflict"
        )
    made = account is None
    account = account or _make_account(call, email, pushed)
    record = scim_users.create(
        call.db, call.org.id, account.id, pushed.user_name, made_account=made
    )
    record.external_id, record.attributes = pushed.external_id, dict(pushed.attributes)
    call.db.flush()
    member = memberships.find(call.db, call.org.id, account.id)
    if pushed.active is False and member is not None:
        _leave(call, record, member, keep=True)
    elif pushed.active is not False and member is None:
        member = _join(call, record, account)
    told = {"linked": not made, "active": pushed.active is not False}
    role = member.role if member is not None and pushed.active is not False else None
    call.audit("scim_user.create", account.id, {**told, "role": role})
    return record


def update(call: ScimCall, record: ScimUser, pushed: Pushed) -> None:
    """As the provider has them now. The address of the account is theirs, and stays."""
    if scim_users.folded(pushed.user_name) != record.user_name_key:
        _refuse_taken_name(call, pushed.user_name)
    before = _told(record)
    record.rename(pushed.user_name)
    record.external_id, record.attributes = pushed.external_id, dict(pushed.attributes)
    changed = sorted(name for name, value in _told(record).items() if value != before[name])
    account = users.of_ids(call.db, [record.user_id])[record.user_id]
    if record.made_account and pushed.shown_name:
        account.name = pushed.shown_name
    member = memberships.find(call.db, call.org.id, record.user_id)
    if pushed.active is True and member is None:
        _own_domain(call, account.email)
        _join(call, record, account)
        call.audit("scim_user.activate", record.user_id, {"changed": changed})
    elif pushed.active is False and member is not None:
        ended = _leave(call, record, member, keep=True)
        call.audit("scim_user.deactivate", record.user_id, {"changed": changed, **ended})
    elif changed:
        call.audit("scim_user.update", record.user_id, {"changed": changed})
    record.touch(call.now)
    call.db.flush()


def remove(call: ScimCall, record: ScimUser) -> None:
    """Nothing is known of them any more; what they made in the organization stays."""
    member = memberships.find(call.db, call.org.id, record.user_id)
    ended = {} if member is None else _leave(call, record, member, keep=False)
    call.audit("scim_user.delete", record.user_id, ended)
    for group in scim_groups.of_pushed(call.db, call.org.id, record.user_id):
        group.touch(call.now)
    call.db.delete(record)
    call.db.flush()


def _join(call: ScimCall, record: ScimUser, account: User) -> Membership:
    seats.refuse_full(call.db, call.org, call.now)
    role = (record.held or {}).get("role", call.token.default_role)
    member = memberships.create(call.db, call.org.id, account.id, role)
    held_roles.give_back(call.db, member, record.held)
    record.held = None
    added = {"user_id": account.id, "email": account.email, "role": role, "source": "scim"}
    call.emit(ADDED, added)
    if role == "owner":
        title, reason = f"{account.email} is an owner of {{name}} again", _AGAIN
        events.raise_(call.db, call.org, OWNER_ADDED, "warning", title, reason, cause=account.id)
    return member


_AGAIN: Final = "the identity provider has activated them; if that is wrong, remove them"


def _leave(call: ScimCall, record: ScimUser, member: Membership, *, keep: bool) -> dict[str, Any]:
    """They are out on the next request; with `keep`, what they held waits for their return."""
    _refuse_last_owner(call, member)
    record.held = held_roles.kept(call.db, member) if keep else None
    told = {"user_id": member.user_id, "role": member.role, "left": False}
    ended = departures.end(call.db, member, call.now)
    call.emit(REMOVED, told)
    return {"role": told["role"], **ended}


def _refuse_last_owner(call: ScimCall, member: Membership) -> None:
    try:
        departures.refuse_last_owner(call.db, member)
    except Conflict as refused:
        # Not 409, which providers take for a name that is taken.
        raise Forbidden(refused.detail, code="last_owner") from refused


def _make_account(call: ScimCall, email: str, pushed: Pushed) -> User:
    name = pushed.shown_name or email.partition("@")[0]
    return users.create(call.db, email=email, name=name[:NAME_LENGTH])


def _own_address(call: ScimCall, pushed: Pushed) -> str:
    if pushed.email is None:
        raise Invalid(
            "the user has no email address: send a work address in emails, or one as userName"
        )
    _own_domain(call, pushed.email)
    return pushed.email


def _own_domain(call: ScimCall, email: str) -> None:
    domain = domains.domain_of(email)
    if domain not in domains.verified(call.db, call.org.id):
        raise Forbidden(
            f"the organization has not verified the domain {domain}: verify it, and provision the"
            " user again; invite people of other domains instead",
            code="domain_not_verified",
        )
    if not allows_address(email, call.org.allowed_email_domains):
        raise Forbidden(
            f"the organization does not allow addresses in {domain} (allowed_email_domains)",
            code="email_domain_refused",
        )


def _refuse_taken_name(call: ScimCall, user_name: str) -> None:
    if scim_users.by_user_name(call.db, call.org.id, user_name) is not None:
        raise Conflict("a user with this userName already exists, whatever its case")


def _told(record: ScimUser) -> dict[str, Any]:
    return {
        "userName": record.user_name,
        "externalId": record.external_id,
        **{name: record.attributes.get(name) for name in ("name", "displayName", "emails")},
    }
