"""The spending cap: what an organization may spend in a month, and what is left of it."""

from typing import Any

from control.billing.spending import Outlook
from control.boundary import AuditedChanges
from handlers.billing import switch, views
from handlers.calls import OrgCall

Body = dict[str, Any]


def get(call: OrgCall) -> Body:
    book = switch.prices(call)
    committed = Outlook.of(call.db, book, call.org.id, call.now).committed()
    return views.spending_cap(call.org, book.currency, committed, call.now)


def replace(call: OrgCall, body: Body) -> Body:
    switch.prices(call)
    was = views.chosen_cap(call.org)
    call.org.cap_spending(body["monthly_amount_cents"], body["on_reach"])
    call.audit(target=call.org.id, detail=body, changes=AuditedChanges.between(was, body))
    call.db.flush()
    return get(call)
