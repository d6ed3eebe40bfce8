"""Workload identities: jobs that sign in as a service account, by tokens of an issuer."""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import structlog

from control.access import workload_tokens
from control.access.workload_tokens import WorkloadToken
from control.boundary import Call, identity
from control.policy import quotas
from control.policy import workload_identities as policy
from control.policy.violations import refuse
from control.workflows.roles import issuers
from handlers import paging
from handlers.access import reach
from handlers.access import views as access_views
from handlers.calls import OrgCall
from handlers.roles import service_accounts as accounts
from handlers.roles import views
from specserver import Forbidden, Reply
from storage.access import api_keys, organizations
from storage.access.api_keys import ApiKey
from storage.roles import oidc_issuers, workload_identities
from storage.roles.service_accounts import ServiceAccount
from storage.roles.workload_identities import WorkloadIdentity

Body = dict[str, Any]
_log = structlog.get_logger("workload_identities")
_NAME_LENGTH = 100


def list_(
    call: OrgCall, service_account: ServiceAccount, limit: int, cursor: str | None = None
) -> Body:
    found = workload_identities.page(
        call.db, service_account, limit=limit, after=paging.after(call, cursor)
    )
    ended = workload_identities.ended(call.db, found.items, call.now)
    read_at = oidc_issuers.read_at(call.db, {one.issuer for one in found.items})
    return paging.page(
        call,
        found,
        lambda one: views.workload_identity(one, one.id not in ended, read_at.get(one.issuer)),
    )


def create(call: OrgCall, service_account: ServiceAccount, body: Body) -> Reply:
    service_account.check_usable()
    accounts.check_reach(call, service_account, None, "tokens that it trusts would give")
    trusted = call.services.settings.oidc_issuers
    refuse(policy.check_trust(body["issuer"], body["subject"], trusted))
    held = workload_identities.count(call.db, service_account)
    refuse(quotas.check_one_more_workload_identity(held))
    made = workload_identities.create(
        call.db, service_account, **body, created_by=call.caller.id, created_by_key_id=_key_id(call)
    )
    oidc_issuers.expect(call.db, made.issuer)
    call.start(issuers.read_keys, lane=issuers.lane_of(made.issuer), issuer=made.issuer)
    call.audit(target=made.id, detail={"service_account_id": service_account.id, **body})
    read_at = oidc_issuers.read_at(call.db, {made.issuer})
    return Reply.created(views.workload_identity(made, True, read_at.get(made.issuer)))


def delete(
    call: OrgCall, service_account: ServiceAccount, workload_identity: WorkloadIdentity
) -> Reply:
    reach.check_member(call, service_account.id)
    gone = workload_identity
    revoked = api_keys.revoke_of_jobs(call.db, call.org.id, gone.id, call.now)
    call.db.delete(gone)
    told = {"service_account_id": service_account.id, "issuer": gone.issuer}
    told |= {"subject": gone.subject, "audience": gone.audience}
    call.audit(target=gone.id, detail={**told, "api_keys_revoked": revoked})
    return Reply.no_content()


def exchange(call: Call, body: Body) -> Reply:
    token = _verified(call, body["token"])
    account = workload_identities.enter(call.db, body["service_account_id"])
    trust = _trust(call, account, token)
    if account is None or trust is None:
        raise _untrusted(call, token)
    held = api_keys.count_of_jobs(call.db, account.org_id, account.id, now=call.now)
    refuse(quotas.check_one_more_key_of_jobs(held))
    key, secret = _mint(call, account, trust, token, body.get("scopes"))
    told = {"key_id": key.id, "workload_identity_id": trust.id, "scopes": key.scopes}
    org = organizations.fetch(call.db, account.org_id)
    call.audit(target=account.id, org=org, detail={**told, **asdict(token)})
    return Reply.created({**access_views.api_key(key), "key": secret})


def _key_id(call: OrgCall) -> str | None:
    return call.caller.key.id if call.caller.key else None


def _verified(call: Call, text: str) -> WorkloadToken:
    token = workload_tokens.read(text)
    allowed = call.services.settings.oidc_issuers
    if token.issuer not in allowed:
        names = ", ".join(allowed) or "none"
        raise workload_tokens.refused(f"it is not of an issuer that this service trusts: {names}")
    known = oidc_issuers.find(call.db, token.issuer)
    if known is None or known.keys is None:
        raise workload_tokens.refused("the keys of its issuer have not been read yet; try again")
    return workload_tokens.verify(token, known.keys, call.now)


def _trust(
    call: Call, account: ServiceAccount | None, token: WorkloadToken
) -> WorkloadIdentity | None:
    """The first by which the account trusts the token; None where it is good for nothing."""
    if account is None or account.disabled_at is not None:
        return None
    if organizations.fetch(call.db, account.org_id).status == "closed":
        return None
    found = workload_identities.usable(call.db, account, token.issuer, token.audience, call.now)
    return next((one for one in found if policy.accepts(one.subject, token.subject)), None)


def _untrusted(call: Call, token: WorkloadToken) -> Forbidden:
    """One answer whatever is missing, so that nobody learns which accounts there are."""
    _log.warning("exchange.refused", issuer=token.issuer, subject=token.subject, ip=call.ip)
    return Forbidden(
        "the token is valid, but no workload identity of this service account trusts its issuer"
        f" {token.issuer}, audience {token.audience} and subject {token.subject}",
        code="workload_not_trusted",
    )


def _mint(
    call: Call,
    account: ServiceAccount,
    trust: WorkloadIdentity,
    token: WorkloadToken,
    scopes: list[str] | None,
) -> tuple[ApiKey, str]:
    made = identity.new_api_key()
    shown = {"name": _name(token.subject), "prefix": made.prefix}
    until = _expiry(call, trust)
    key = workload_identities.key(
        account, trust, **shown, scopes=scopes, token_hash=made.sha256, expires_at=until
    )
    call.db.add(key)
    call.db.flush()
    return key, made.secret


def _expiry(call: Call, trust: WorkloadIdentity) -> datetime:
    """No later than that of the key which the trust was created with."""
    at = call.now + timedelta(seconds=call.services.settings.workload_key_ttl_s)
    if trust.created_by_key_id is None:
        return at
    maker = api_keys.fetch(call.db, trust.org_id, trust.created_by_key_id)
    return min(at, maker.expires_at or at)


def _name(subject: str) -> str:
    """What people know the job by; in ASCII, as a display name may not have all that is there."""
    shown = subject.encode("ascii", "replace").decode().strip() or "a job"
    return shown if len(shown) <= _NAME_LENGTH else f"{shown[: _NAME_LENGTH - 3]}..."
