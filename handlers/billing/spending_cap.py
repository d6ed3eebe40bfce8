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
    was, chosen = views.chosen_cap(call.org), {"on_reach": "refuse", **body}
    call.org.cap_spending(chosen["monthly_amount_cents"], chosen["on_reach"])
    call.audit(target=call.org.id, detail=chosen, changes=AuditedChanges.between(was, chosen))
    call.db.flush()
    return get(call)
