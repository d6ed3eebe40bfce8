"""Service accounts: programs whose API keys end with no person."""

from datetime import datetime
from typing import Any

from control.access import role_holders
from control.boundary import identity
from control.policy import quotas
from control.policy.plans import PLANS
from control.policy.violations import refuse
from handlers import paging
from handlers.access import api_keys as keys
from handlers.access import reach
from handlers.access import views as access_views
from handlers.calls import OrgCall
from handlers.roles import views
from specserver import Reply
from storage.access import api_keys, memberships
from storage.roles import service_accounts, workload_identities
from storage.roles.service_accounts import ServiceAccount

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    found = service_accounts.page(call.db, call.org.id, limit=limit, after=after)
    return paging.page(call, found, views.service_account)


def get(_call: OrgCall, service_account: ServiceAccount) -> Body:
    return views.service_account(service_account)


def create(call: OrgCall, body: Body) -> Reply:
    expires_at = keys.expiry(call, body.get("expires_at"))
    reach.check_role(call, body["role"])
    refuse(quotas.check_one_more_service_account(service_accounts.count(call.db, call.org.id)))
    account = service_accounts.create(
        call.db, call.org.id, name=body["name"], role=body["role"], created_by=call.caller.id
    )
    key = _mint(call, account, {"name": account.name}, expires_at)
    told = {"name": account.name, "role": account.role, "key_id": key["id"]}
    call.audit(target=account.id, detail=told)
    return Reply.created({**views.service_account(account), "api_key": key})


def disable(call: OrgCall, service_account: ServiceAccount) -> Body:
    service_account.disable(call.now)
    reach.check_member(call, service_account.id)
    revoked = api_keys.revoke_of(call.db, call.org.id, service_account.id, call.now)
    trusts = workload_identities.delete_of(call.db, service_account)
    call.db.delete(memberships.fetch(call.db, call.org.id, service_account.id, lock=True))
    told = {"name": service_account.name, "api_keys_revoked": revoked}
    told |= {"workload_identities_deleted": trusts} if trusts else {}
    call.audit(target=service_account.id, detail=told)
    return views.service_account(service_account)


def create_key(call: OrgCall, service_account: ServiceAccount, body: Body) -> Reply:
    service_account.check_usable()
    expires_at = keys.expiry(call, body.get("expires_at"))
    check_reach(call, service_account, body.get("scopes"), "the key would have")
    key = _mint(call, service_account, body, expires_at)
    told = {"key_id": key["id"], "name": body["name"], "scopes": body.get("scopes")}
    call.audit(target=service_account.id, detail=told)
    return Reply.created(key)


def check_reach(call: OrgCall, account: ServiceAccount, scopes: list[str] | None, who: str) -> None:
    """Nobody gets by a key what they do not have: the account may have been given more since."""
    member = role_holders.of_member(call.db, call.org.id, account.id)
    assert member is not None, "it is not disabled"
    given = member.rights if scopes is None else member.rights.cut(frozenset(scopes))
    reach.check_given(call, given, who)


def _mint(call: OrgCall, account: ServiceAccount, body: Body, expires_at: datetime | None) -> Body:
    held = api_keys.count(call.db, call.org.id, now=call.now)
    refuse(quotas.check_one_more_api_key(PLANS[call.org.plan], held))
    token = identity.new_api_key()
    key = keys.record(call, {**body, "role": account.role}, token, expires_at)
    key.created_by = key.service_account_id = account.id
    call.db.add(key)
    call.db.flush()
    return {**access_views.api_key(key), "key": token.secret}
