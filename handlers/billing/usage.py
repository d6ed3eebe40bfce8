"""Usage: what was used, by time and by whom, at list prices."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from control.billing import usage_rows
from control.billing.usage_rows import LONGEST, GroupOf, UsageRow
from control.policy.months import hour_of, month_of
from handlers import instants
from handlers.billing import switch, views
from handlers.calls import OrgCall
from storage.access import teams
from storage.access.teams import TeamNames
from storage.billing.whose import Whose
from storage.instances import instances

Body = dict[str, Any]
Span = tuple[datetime, datetime]


def list_(
    call: OrgCall,
    group_by: str,
    granularity: str,
    limit: int,
    cursor: str | None = None,
    from_: str | None = None,
    to: str | None = None,
) -> Body:
    book, after = switch.prices(call), call.cursor_in(cursor)
    span = _span(call, granularity, from_, to)
    known = teams.names(call.db, call.org.id)
    found = _found(call, span, granularity, _group_of(group_by, known), after)
    rows = list(islice(found, limit + 1))
    return {
        **views.span(span, granularity, group_by, book.currency),
        "items": views.usage_rows(rows[:limit], _names(call, group_by, known, rows)),
        "next_cursor": _cursor(call, rows, limit),
    }


def _found(
    call: OrgCall, span: Span, granularity: str, group_of: GroupOf, after: Body | None
) -> Iterator[UsageRow]:
    """What follows the place of the cursor."""
    whose, book = Whose(call.org.id, scope=call.scope), call.services.settings.prices
    begin = None if after is None else datetime.fromisoformat(after["begin"])
    rows = usage_rows.rows(call.db, book, whose, span, granularity, group_of, begin_at=begin)
    last = None if after is None else (begin, after["group"])
    return (row for row in rows if last is None or row.place > last)


def _span(call: OrgCall, granularity: str, from_: str | None, to: str | None) -> Span:
    """Of full hours, as what is metered is metered by the hour; until now where it ends later."""
    since = month_of(call.now).begin if from_ is None else _full_hour(from_, "from")
    until = call.now if to is None else min(call.now, _full_hour(to, "to"))
    if until - since > LONGEST[granularity]:
        most = f"{LONGEST[granularity].days} days"
        message = (
            f"must be within {most} before the end of the span, with granularity {granularity}"
        )
        raise instants.refused(message, keyword="maximum", parameter="from")
    return since, until


def _full_hour(text: str, parameter: str) -> datetime:
    moment = instants.read(text, parameter=parameter)
    if hour_of(moment) != moment:
        message = "must be a full hour in UTC such as 2026-11-21T09:00:00Z"
        raise instants.refused(message, keyword="format", parameter=parameter)
    return moment


def _group_of(group_by: str, known: TeamNames) -> GroupOf:
    centres = {team_id: team.cost_centre for team_id, team in known.items()}
    if group_by == "instance":
        return lambda key: key.instance_id
    if group_by == "metric":
        return lambda key: key.metric
    if group_by == "team":
        return lambda key: key.team_id
    return lambda key: centres.get(key.team_id or "")


def _names(call: OrgCall, group_by: str, known: TeamNames, rows: list[UsageRow]) -> dict[str, str]:
    groups = {row.group for row in rows if row.group is not None}
    if group_by == "instance":
        return instances.names(call.db, call.org.id, groups)
    if group_by == "team":
        return {each: known[each].name for each in groups if each in known}
    return {}


def _cursor(call: OrgCall, rows: list[UsageRow], limit: int) -> str | None:
    if len(rows) <= limit:
        return None
    begin, group = rows[limit - 1].place
    return call.cursor_out({"begin": begin.isoformat(), "group": group})
