"""Lists as pages, with the cursor of the next."""

from typing import Any, Protocol

from control.boundary import Call
from storage.pages import Page

Json = dict[str, Any]


class View(Protocol):
    def __call__(self, record: Any, /) -> Json: ...


def page(call: Call, found: Page[Any], view: View) -> Json:
    """One page of a list, with the cursor of the next."""
    after = found.next_after
    return {
        "items": [view(record) for record in found.items],
        "next_cursor": None if after is None else call.cursor_out({"after": after}),
    }


def after(call: Call, cursor: str | None) -> str | None:
    """The id a list goes on after; None at its beginning."""
    position = call.cursor_in(cursor)
    return None if position is None else str(position["after"])
