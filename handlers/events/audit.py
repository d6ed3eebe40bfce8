"""The audit log: a page of it, or all of it as a file."""

import csv
import io
from dataclasses import replace
from functools import partial
from typing import Any, Final

import orjson

from control.events import audit_csv, spreadsheet_cells
from handlers import instants, paging
from handlers.calls import OrgCall
from handlers.events import views
from specserver import Invalid, Reply
from storage.events import audit, audit_publications
from storage.events.audit import AuditEntry, AuditFilter

EXPORT_MAX: Final = 50_000
PAGE: Final = 500
FILTERS: Final = ("from", "to", "action", "actor_id", "target")

Body = dict[str, Any]


def list_(call: OrgCall, limit: int, cursor: str | None = None, **filters: str) -> Body:
    last = paging.after(call, cursor)
    found = audit.page(call.db, call.org.id, _chosen(filters), limit=limit, after=last)
    return paging.page(call, found, views.audit_entry)


def export(call: OrgCall, **filters: str) -> Reply:
    chosen = _chosen(filters)
    # What is written while the file is read, its own entry first, is none of it.
    chosen = replace(chosen, until=chosen.until or call.now)
    _check_size(call, chosen)
    call.audit(detail={name: filters[name] for name in FILTERS if name in filters})
    return call.streamed(partial(_rows, chosen), "", "text/csv; charset=utf-8", "audit.csv")


def heads(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    found = audit_publications.page(call.db, call.org.id, limit=limit, after=after)
    return paging.page(call, found, views.published_head)


def _chosen(filters: dict[str, str]) -> AuditFilter:
    since, until = (
        instants.read(filters[name], parameter=name) if name in filters else None
        for name in ("from", "to")
    )
    equal = {name: filters.get(name) for name in ("action", "actor_id", "target")}
    return AuditFilter(since, until, **equal)


def _rows(chosen: AuditFilter, call: OrgCall, last: str) -> tuple[str, str | None]:
    """A page of lines, the first with the names of the columns; and where to go on."""
    found = audit.page(call.db, call.org.id, chosen, limit=PAGE, after=last or None)
    text = io.StringIO()
    rows = csv.writer(text)
    if not last:
        rows.writerow(audit_csv.COLUMNS)
    rows.writerows(_row(entry) for entry in found.items)
    return text.getvalue(), found.next_after


def _row(entry: AuditEntry) -> list[str]:
    shown = views.audit_entry(entry)
    shown["detail"] = orjson.dumps(shown["detail"], option=orjson.OPT_SORT_KEYS).decode()
    return [spreadsheet_cells.escaped(str(shown[name] or "")) for name in audit_csv.COLUMNS]


def _check_size(call: OrgCall, chosen: AuditFilter) -> None:
    first_left_out = audit.time_of(call.db, call.org.id, chosen, EXPORT_MAX)
    if first_left_out is None:
        return
    latest = instants.timestamp(first_left_out)
    message = f"must be later than {latest}, so that at most {EXPORT_MAX:,} entries match"
    raise Invalid(
        f"there are too many entries for one export: from {message}; export the earlier ones with"
        " `to` after that",
        code="export_too_large",
        errors=[{"parameter": "from", "keyword": "quota", "message": message}],
    )
