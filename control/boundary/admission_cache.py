"""Callers let in before, whose records need not be loaded again while the database has them so.

Each request asks the database for all rows that its credential's force follows from, as texts.
Where these are what they were, so are the records and the rights; else they are made anew. Nothing
is believed for any time: a key that was revoked lets the next request in no more.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.orm.attributes import instance_state

if TYPE_CHECKING:  # credentials are looked up here
    from control.access.role_holders import SupportRight
    from control.boundary.callers import Caller
    from storage.access.organizations import Organization

MAX: Final = 10_000


@dataclass(frozen=True)
class ResolvedCredential:
    """What a credential comes to as its rows are; when it expires, and `mfa`, is seen anew.

    Its records may be those of many requests that read, so they are for reading.
    """

    caller: "Caller"
    org: "Organization | None"
    support: "tuple[SupportRight, ...]" = ()
    """What support grants of the organization give somebody of support who is no member of it."""

    def changed(self) -> Iterator[str]:
        """What of its records a request has changed, which is to be nothing."""
        for record in (self.caller.user, self.caller.key, self.caller.session, self.org):
            if record is not None and instance_state(record).modified:
                yield type(record).__name__


class AdmissionCache:
    """Resolved credentials, those found last; safe to share between threads."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], tuple[list[Any], ResolvedCredential]] = {}
        self._lock = threading.Lock()

    def get(self, credential: tuple[Any, ...], rows: list[Any]) -> ResolvedCredential | None:
        """What the credential came to when its rows were these."""
        found = self._found.get(credential)
        return found[1] if found is not None and found[0] == rows else None

    def note(
        self, credential: tuple[Any, ...], rows: list[Any], resolved: ResolvedCredential
    ) -> None:
        with self._lock:
            if self._found.pop(credential, None) is None and len(self._found) >= MAX:
                del self._found[next(iter(self._found))]
            self._found[credential] = rows, resolved
