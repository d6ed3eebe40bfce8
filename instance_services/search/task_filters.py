"""Owns which tasks a request means, by its parameters."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from instance_services.search.callers import KeyBearer
from instance_services.search.clock import written
from instance_services.search.errors import ApiError, snake
from instance_services.search.tasks import STATUSES, TYPES, Filters

_INSTANTS: Final = {
    f"{when}_{kind}_at": (f"{kind}_at", "<" if when == "before" else ">")
    for when in ("before", "after")
    for kind in ("enqueued", "started", "finished")
}


def of(given: Mapping[str, Any], caller: KeyBearer) -> Filters:
    """Of parameters by their names in snake case; `*` in a list is all. Raises ApiError."""
    return Filters(
        uids=_numbers("uids", given.get("uids")),
        batch_uids=_numbers("batch_uids", given.get("batch_uids")),
        statuses=_names("statuses", given.get("statuses"), STATUSES),
        types=_names("types", given.get("types"), TYPES),
        index_uids=_list(given.get("index_uids")),
        canceled_by=_numbers("canceled_by", given.get("canceled_by")),
        times=tuple(
            (*_INSTANTS[name], _instant(name, value))
            for name, value in given.items()
            if name in _INSTANTS and value is not None
        ),
        allowed=list(caller.indexes) if caller.is_limited else None,
    )


def page_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Which page of tasks or batches is wanted, for their `page`."""
    return {
        "limit": given.get("limit", 20),
        "start": given.get("from"),
        "reverse": given.get("reverse", False),
    }


def _list(given: list[str] | None) -> list[str] | None:
    return None if given is None or "*" in given else given


def _names(name: str, given: list[str] | None, allowed: tuple[str, ...]) -> list[str] | None:
    found = _list(given)
    for each in found or ():
        if each not in allowed:
            raise ApiError(
                f"invalid_task_{snake(name)}",
                f"`{each[:100]}` is none of {name}: {', '.join(allowed)}",
            )
    return found


def _numbers(name: str, given: list[str] | None) -> list[int] | None:
    found = _list(given)
    if found is None:
        return None
    if not all(each.isascii() and each.isdecimal() and len(each) < 18 for each in found):  # noqa: PLR2004
        raise ApiError(f"invalid_task_{name}", f"{name} are numbers of tasks, or `*`")
    return list(map(int, found))


def _instant(name: str, text: str) -> str:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ApiError(
            f"invalid_task_{name}", f"{name} is a date or an instant, as in 2026-01-31T09:30:00Z"
        ) from None
    return written(found if found.tzinfo else found.replace(tzinfo=UTC))
