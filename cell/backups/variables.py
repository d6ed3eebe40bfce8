"""What the environment says of the second store, beside what it says of the first."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PREFIX: Final = "BACKUP_COPY_"
_PROVIDERS: Final = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
_ALLOW_HTTP: Final = "AWS_ALLOW_HTTP"
# Those of the first store are never mixed with these: a session's token belongs to its key.
_KEY: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@dataclass(frozen=True)
class StoreVariables:
    """What is told to the library of stores, where it would take it from the environment itself.

    `key` is that of S3, in the form of its `credential_provider`.
    """

    allows_http: bool
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    key: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `from_url`."""
        found: dict[str, Any] = {"config": dict(self.config)} if self.config else {}
        if (key := self.key) is not None:
            found["credential_provider"] = lambda: dict(key)
        return found


def of_first(environment: Mapping[str, str] = os.environ) -> StoreVariables:
    """All the rest the library finds by itself."""
    return StoreVariables(environment.get(_ALLOW_HTTP, "") == "true")


def of_second(scheme: str, environment: Mapping[str, str] = os.environ) -> StoreVariables:
    """Variables with the prefix; what has none with it is as for the first store."""
    provider = _PROVIDERS.get(scheme, "")
    told = {
        name.removeprefix(PREFIX): value
        for name, value in environment.items()
        if provider and name.startswith(f"{PREFIX}{provider}") and value
    }
    allows_http = told.pop(_ALLOW_HTTP, environment.get(_ALLOW_HTTP, "")) == "true"
    key = None
    if _KEY[0] in told:
        found = [told.pop(name, None) for name in _KEY]
        key = {
            "access_key_id": found[0],
            "secret_access_key": found[1] or "",
            "token": found[2],
            "expires_at": None,
        }
    config = {name.lower(): value for name, value in told.items()}
    return StoreVariables(allows_http, config, key)
