"""Pages of queues, which a cell keeps and not our database."""

from typing import Any

from handlers.calls import OrgCall

Json = dict[str, Any]


def after(call: OrgCall, cursor: str | None) -> str:
    """The name a list goes on after."""
    position = call.cursor_in(cursor)
    return "" if position is None else str(position["after"])


def page(call: OrgCall, found: Json) -> Json:
    name = found["next_after"]
    cursor = None if name is None else call.cursor_out({"after": name})
    return {"items": found["items"], "next_cursor": cursor}
