"""SCIM tokens: what an identity provider pushes people and groups with."""

from datetime import datetime
from typing import Any

from control.boundary import identity
from control.policy import quotas
from control.policy.violations import refuse
from handlers import instants, paging
from handlers.calls import OrgCall, OwnerCall
from handlers.sso import scim_views
from specserver import Reply
from storage.sso import scim_tokens
from storage.sso.scim_tokens import ScimToken

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    found = scim_tokens.page(call.db, call.org.id, limit=limit, after=after)
    return paging.page(call, found, scim_views.token)


def create(call: OwnerCall, body: Body) -> Reply:
    expires_at = _expiry(call, body.get("expires_at"))
    held = scim_tokens.count(call.db, call.org.id, call.now)
    refuse(quotas.check_one_more_scim_token(held))
    token = identity.new_scim_token()
    kept = {"prefix": token.prefix, "token_hash": token.sha256}
    given = {name: body[name] for name in ("name", "default_role")}
    by = {"created_by": call.caller.user.id}
    made = scim_tokens.create(call.db, call.org.id, **kept, **given, **by, expires_at=expires_at)
    call.audit(target=made.id, detail={"name": made.name, "default_role": made.default_role})
    return Reply.created({**scim_views.token(made), "token": token.secret})


def revoke(call: OrgCall, scim_token: ScimToken) -> Reply:
    scim_token.revoked_at = call.now
    call.audit(target=scim_token.id, detail={"name": scim_token.name})
    return Reply.no_content()


def _expiry(call: OrgCall, text: str | None) -> datetime | None:
    expires_at = None if text is None else instants.read(text, pointer="/expires_at")
    if expires_at is not None and expires_at <= call.now:
        raise instants.refused("must be in the future", keyword="future", pointer="/expires_at")
    return expires_at
