"""Credits: what was granted to an organization, and what is left of it."""

from typing import Any

from handlers import paging
from handlers.billing import credit_views as views
from handlers.billing import switch
from handlers.calls import OrgCall
from storage.billing import credit_ledger

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    currency = switch.prices(call).currency
    found = credit_ledger.page(call.db, call.org.id, limit=limit, after=paging.after(call, cursor))
    return {
        "currency": currency,
        "balance_cents": credit_ledger.balance(call.db, call.org.id, call.now, currency),
        **paging.page(call, found, lambda one: views.credit(one, call.now)),
    }
