"""What a request changes of settings, before and after, as the audit log tells it."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from storage.events.audit_chain import written

TEXT_MAX: Final = 200
Read = Callable[[], Mapping[str, Any]]


class AuditedChanges:
    """Made before the change; what has another value since is told, each with `from` and `to`.

    `read` gives the values: none that is secret and no free text, as the log outlives both.
    Of lists and maps only the number of their items is told.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._before = dict(read())

    @classmethod
    def of(cls, record: object, members: Iterable[str]) -> "AuditedChanges":
        """Of these attributes of the record."""
        names = tuple(members)
        return cls(lambda: {name: getattr(record, name) for name in names})

    @classmethod
    def between(cls, before: Mapping[str, Any], after: Mapping[str, Any]) -> "AuditedChanges":
        """Where what is asked for does not hold at once."""
        made = cls(lambda: after)
        made._before = dict(before)
        return made

    def told(self) -> dict[str, dict[str, Any]]:
        after = self._read()
        return {
            name: {"from": _shown(self._before.get(name)), "to": _shown(value)}
            for name, value in after.items()
            if self._before.get(name) != value
        }


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return len(value)
    if isinstance(value, datetime):
        return written(value)
    if isinstance(value, str):
        return value[:TEXT_MAX]
    return value
