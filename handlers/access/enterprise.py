"""Enterprises: a parent organization, its terms, and the subsidiaries that are attached to it."""

from typing import Any

from control.boundary import AuditedChanges
from control.policy import enterprises as rules
from control.policy import quotas
from control.policy.plans import PLANS
from control.policy.violations import refuse
from handlers import paging
from handlers.access import enterprise_checks as checks
from handlers.access import enterprise_views as views
from handlers.calls import OrgCall, OwnerCall
from specserver import Reply
from storage.access import enterprises
from storage.access.enterprises import EnterpriseOrg
from storage.billing import payers

Body = dict[str, Any]


def get(call: OrgCall) -> Body:
    return _shown(call, enterprises.find(call.db, call.org.id))


def create(call: OwnerCall, body: Body) -> Reply:
    checks.check_plan(call)
    checks.refuse_known(enterprises.find(call.db, call.org.id))
    refuse(rules.check_terms(body), checks.BREAKS)
    made = enterprises.found(call.db, call.org.id, body)
    call.audit(target=call.org.id, detail={"terms": sorted(body)})
    return Reply.created(_shown(call, made), f"/v1/orgs/{call.org.id}/enterprise")


def update(call: OwnerCall, body: Body) -> Body:
    known = checks.parent(call)
    refuse(rules.check_terms({**views.terms(known), **body}), checks.BREAKS)
    # All but the reference to the contract, which is any text.
    changes = AuditedChanges.of(known, body.keys() - {"contract_reference"})
    checks.choose_payer(call, known, body)
    known.change(body)
    call.audit(target=call.org.id, detail={"terms": sorted(body)}, changes=changes)
    call.db.flush()
    return _shown(call, known)


def list_subsidiaries(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    found = enterprises.page(call.db, call.org.id, limit=limit, after=after)
    held = enterprises.held(call.db, [one.org_id for one in found.items])
    prices = call.services.settings.prices.at(call.now)
    return paging.page(
        call, found, lambda one: views.subsidiary(one, rules.sums(prices, held.get(one.org_id, ())))
    )


def attach(call: OwnerCall, body: Body) -> Reply:
    checks.check_plan(call)
    known = checks.parent(call)
    checked = checks.to_attach(call, body["org_id"])
    count = enterprises.count(call.db, call.org.id)
    refuse(quotas.check_one_more_subsidiary(PLANS[call.org.plan], count))
    made = enterprises.attach(call.db, call.org.id, checked.id, call.caller.user.id)
    checks.begin_paying(call, known, checked.id)
    checks.audit_both(call, made)
    held = enterprises.held(call.db, [checked.id])[checked.id]
    cost = rules.sums(call.services.settings.prices.at(call.now), held)
    return Reply.created(views.subsidiary(enterprises.shown(call.db, made), cost))


def detach(call: OwnerCall, subsidiary: EnterpriseOrg) -> Reply:
    checks.audit_both(call, subsidiary)
    checks.end_paying(call, [subsidiary.org_id])
    enterprises.detach(call.db, subsidiary)
    return Reply.no_content()


def _shown(call: OrgCall, known: EnterpriseOrg | None) -> Body:
    if known is None:
        return views.outside(call.org.id)
    if known.role == "subsidiary":
        paid_for = payers.is_paid_for(call.db, call.org.id)
        name = enterprises.parent_name(call.db, known)
        return views.of_subsidiary(known, name, paid_for=paid_for)
    ids = enterprises.ids(call.db, call.org.id)
    held = enterprises.held(call.db, [call.org.id, *ids])
    prices = call.services.settings.prices.at(call.now)
    each = {org_id: rules.sums(prices, held.get(org_id, ())) for org_id in (call.org.id, *ids)}
    return views.of_parent(known, each, PLANS[call.org.plan].subsidiaries_max)
