"""The cost report: what a month costs by team and cost centre, to read and as a file."""

import csv
import io
from functools import partial

from control.billing import usage_rows
from control.billing.usage_rows import CostRow
from control.events import spreadsheet_cells
from control.policy.months import Month, month_of
from handlers import instants, paging
from handlers.billing import switch, views
from handlers.calls import OrgCall
from specserver import Reply
from storage.access import teams
from storage.billing.whose import Whose
from storage.pages import Page


def get(
    call: OrgCall,
    format: str,  # noqa: A002 - the parameter has this name
    limit: int,
    month: str | None = None,
    cursor: str | None = None,
) -> Reply:
    switch.prices(call)
    chosen = _month(call, month)
    if format == "csv":
        name = f"cost-report-{chosen.name}.csv"
        return call.streamed(partial(_csv, chosen), "", "text/csv; charset=utf-8", name)
    rows, last = _rows(call, chosen), paging.after(call, cursor)
    rest = [row for row in rows if last is None or (row.team_id or "") > last]
    more = rest[limit - 1].team_id or "" if len(rest) > limit else None
    known = teams.names(call.db, call.org.id)
    page = paging.page(call, Page(rest[:limit], more), partial(views.cost_row, known))
    currency = call.services.settings.prices.currency
    return Reply.ok({**views.cost_head(chosen, currency, rows, call.now), **page})


def _month(call: OrgCall, name: str | None) -> Month:
    this = month_of(call.now)
    chosen = this if name is None else usage_rows.month_named(name)
    if chosen.begin > this.begin:
        message = f"must not be later than this month, {this.name}"
        raise instants.refused(message, keyword="maximum", parameter="month")
    return chosen


def _rows(call: OrgCall, month: Month) -> list[CostRow]:
    whose, book = Whose(call.org.id, scope=call.scope), call.services.settings.prices
    return usage_rows.cost_rows(call.db, book, whose, month, call.now)


def _csv(month: Month, call: OrgCall, _begin: str) -> tuple[str, str | None]:
    """All of it: there are a few lines for each team."""
    known, currency = teams.names(call.db, call.org.id), call.services.settings.prices.currency
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(views.CSV_COLUMNS)
    for row in _rows(call, month):
        for line in views.csv_lines(month, currency, known, row):
            lines.writerow([spreadsheet_cells.escaped(cell) for cell in line])
    return text.getvalue(), None
