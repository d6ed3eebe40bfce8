"""Organizations: the owners of everything else."""

from functools import partial
from typing import Any

from control import ordering
from control.boundary import AuditedChanges, Call, mfa_required
from control.policy import quotas
from control.policy.violations import refuse, wrong
from control.workflows.instances import erasure
from handlers import instants
from handlers.access import slugs, views
from handlers.billing import referring
from handlers.calls import CallerCall, OrgCall, SessionCall
from handlers.instances import certificates
from specserver import Reply
from storage.access import api_keys, memberships, organizations
from storage.catalogue import cells
from storage.instances import in_scope, instances
from storage.instances.instances import ERASABLE, Instance
from storage.sso import domains as sso_domains

Body = dict[str, Any]


def list_(call: CallerCall) -> list[Body]:
    return mine(call)


def mine(call: CallerCall) -> list[Body]:
    """The caller's organizations; an API key that may read one has the one it belongs to.

    A session that is held to one sees no other.
    """
    caller = call.caller
    if caller.key is not None:
        if not caller.rights.has("org:read"):
            return []
        org = organizations.of_key(call.db, caller.key)
        return [views.organization(org, caller.role or caller.key.role)]
    found = organizations.of_user(call.db, caller.user.id)
    held_to = caller.held_to
    shown = [(org, role) for org, role in found if held_to in (None, org.id)]
    return [views.organization(org, role) for org, role in shown]


def create(call: SessionCall, body: Body) -> Reply:
    region = body.get("region")
    _check_region(call, region)
    plan = call.services.settings.default_plan
    _check_quota(call, plan)
    referred_by = referring.referring(call, body.get("referral_code"))
    slug = body.get("slug") or slugs.derive(
        body["name"], "org", partial(organizations.is_slug_taken, call.db)
    )
    org = organizations.create(
        call.db, name=body["name"], slug=slug, default_region=region, plan=plan
    )
    memberships.create(call.db, org.id, call.caller.user.id, "owner")
    referring.refer(call, referred_by, org.id)
    call.audit(target=org.id, org=org, detail={"name": org.name, "slug": org.slug})
    return Reply.created(views.organization(org, "owner"), f"/v1/orgs/{org.id}")


def get(call: OrgCall) -> Body:
    return views.organization(call.org, call.caller.role or "")


def update(call: OrgCall, body: Body) -> Body:
    if body.get("require_mfa") and not call.org.require_mfa and not call.caller.mfa:
        # Else nobody may be able to do what it is asked for, nor to take this back.
        raise mfa_required()
    changes = AuditedChanges.of(call.org, body)
    call.org.change(body)
    call.audit(target=call.org.id, detail=_told(body), changes=changes)
    return views.organization(call.org, call.caller.role or "")


def close(call: OrgCall, body: Body) -> Reply:
    call.org.close(call.now)
    sso_domains.release(call.db, call.org)
    erasing = body["erase_everything"]
    leaving = _erase_all(call) if erasing else _delete_all(call)
    revoked = api_keys.revoke_all(call.db, call.org.id, call.now)
    call.audit(target=call.org.id, detail={"erase_everything": erasing, "instances": len(leaving)})
    kept = [one.purge_after for one in leaving if one.desired_status == "deleted"]
    answer = {
        "org": views.organization(call.org, call.caller.role or ""),
        "api_keys_revoked": revoked,
        "instances_deleting": 0 if erasing else len(leaving),
        "instances_erasing": len(leaving) if erasing else 0,
        "purge_after": instants.timestamp_or_none(max((at for at in kept if at), default=None)),
    }
    return Reply.accepted(answer)


def ca(call: OrgCall) -> Reply:
    hosting = {one.cell_id for one in in_scope.live(call.db, call.org.id, scope=call.scope)}
    if not hosting:
        every = cells.every(call.db)
        home = call.org.default_region
        hosting = {cell.id for cell in every if home in (None, cell.region)}
    return certificates.of_cells(call, hosting)


def _told(values: Body) -> Body:
    """For the audit log: of the list of domains, only how many there are."""
    domains = values.get("allowed_email_domains")
    return values if domains is None else {**values, "allowed_email_domains": len(domains)}


def _delete_all(call: OrgCall) -> list[Instance]:
    live = in_scope.live(call.db, call.org.id, scope=None)
    for instance in live:
        instance.delete(ordering.kept_until(call.requester, instance, call.now))
        call.start(erasure.delete, instance)
    return live


def _erase_all(call: OrgCall) -> list[Instance]:
    """In whatever state they are: nothing of the organization's data stays."""
    held = instances.in_statuses(call.db, call.org.id, ERASABLE)
    for instance in held:
        instance.erase()
        call.start(erasure.erase, instance)
    return held


def _check_quota(call: SessionCall, plan: str) -> None:
    """Held for the user until the commit, so that two requests at once do not pass it."""
    user, settings = call.caller.user, call.services.settings
    call.db.refresh(user, with_for_update=True)
    limits = quotas.orgs_max(
        plan, of_any_plan=settings.orgs_per_user, of_free=settings.free_orgs_per_user
    )
    for counted, limit in limits.items():
        owned = organizations.count_owned(call.db, user.id, counted)
        refuse(quotas.check_one_more_org(owned, limit, counted))
    since = call.now - quotas.ORGS_CLOSED_WITHIN
    refuse(quotas.check_closed_orgs(organizations.count_closed(call.db, user.id, since)))


def _check_region(call: Call, region: str | None) -> None:
    known = ordering.catalogue(call.db).regions
    if region is not None and region not in known:
        message = f"{region!r} is not a region; available: {', '.join(known) or 'none yet'}"
        refuse([wrong("region", "enum", message)])
