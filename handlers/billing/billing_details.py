"""Billing details: how an organization is named on its invoices, and where these are sent."""

from typing import Any, Final

from control.boundary import AuditedChanges
from control.policy import customer_details
from control.policy.violations import refuse
from handlers.billing import switch
from handlers.calls import OrgCall
from storage.billing import customers

Body = dict[str, Any]
_TAXING: Final = ("country", "vat_number")
"""What decides the tax; none of it is any text."""


def get(call: OrgCall) -> Body:
    switch.prices(call)
    return customer_details.shown(customers.details_of(call.db, call.org.id))


def replace(call: OrgCall, body: Body) -> Body:
    was = get(call)
    refuse(customer_details.faults(body))
    customers.describe(call.db, call.org.id, customer_details.kept(body))
    taxing = ({name: of[name] for name in _TAXING} for of in (was, body))
    detail = {"changed": sorted(name for name in body if body[name] != was[name])}
    changes = AuditedChanges.between(*taxing)
    call.audit(target=call.org.id, detail=detail, changes=changes)
    return get(call)
