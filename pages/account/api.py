"""The API as the pages ask it: for the browser of one request, and by the door that all use."""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

ENVIRON: Final = "pages.api"
"""Where a request's AccountApi is in its WSGI environment."""
OK_BELOW: Final = 400


@dataclass(frozen=True)
class ApiAnswer:
    """What the API said; `body` is empty where it said nothing."""

    status: int
    body: dict[str, Any] = field(default_factory=dict)
    retry_after: str = ""

    @property
    def is_ok(self) -> bool:
        return self.status < OK_BELOW

    @property
    def code(self) -> str:
        return str(self.body.get("code", ""))


class AccountApi(Protocol):
    """One request's, so that whatever is asked comes from its client and counts as theirs."""

    def call(
        self, method: str, path: str, *, token: str = "", body: Any = None, key: str = ""
    ) -> ApiAnswer:
        """Ask with a session's token, if any, and with `key` as the Idempotency-Key."""
