"""What a connection's record says of an OpenID Connect client: read, and sealed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
import structlog

from control.access.signed_tokens import Jwk
from control.sealing import Sealer, SealError
from control.sso.oidc.discovery import Provider
from specserver import Conflict
from storage.sso.connections import SsoConnection

_log = structlog.get_logger("sso")
SCOPES: Final = ("openid", "email", "profile")
"""What is asked for unless the connection says otherwise."""


@dataclass(frozen=True)
class OidcClient:
    """Of one connection, taken from its transaction; `settings` are as they were then."""

    org_id: str
    connection_id: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: tuple[str, ...]
    provider: Provider
    keys: list[Jwk]
    mapping: Mapping[str, str]
    settings: Mapping[str, Any]

    def with_keys(self, keys: list[Jwk]) -> "OidcClient":
        return replace(self, keys=keys)


def seal(sealer: Sealer, connection_id: str, client_secret: str) -> bytes:
    secrets = orjson.dumps({"client_secret": client_secret})
    return sealer.seal(secrets, _context(connection_id))


def client_of(connection: SsoConnection, sealer: Sealer) -> OidcClient:
    """Raises SealError where the secret cannot be opened by this installation."""
    assert connection.secrets_sealed is not None, "a client is made with its secret"
    assert connection.provider is not None, "a client is made with what its provider publishes"
    opened = orjson.loads(sealer.open(connection.secrets_sealed, _context(connection.id)))
    return OidcClient(
        org_id=connection.org_id,
        connection_id=connection.id,
        client_id=connection.settings["client_id"],
        client_secret=opened["client_secret"],
        scopes=tuple(connection.settings["scopes"]),
        provider=Provider.of_json(connection.provider),
        keys=list(connection.keys or ()),
        mapping=dict(connection.attribute_mapping),
        settings=dict(connection.settings),
    )


@contextmanager
def told_if_unreadable(connection: SsoConnection) -> Iterator[None]:
    """In place of SealError, raises the Conflict that says who can mend it; it is logged."""
    try:
        yield
    except SealError:
        _log.exception("sso.secret_unreadable", connection=connection.id)
        raise Conflict(
            "the connection's client secret cannot be opened by this installation: an"
            " administrator has to set it again",
            code="sso_secret_unreadable",
        ) from None


def _context(connection_id: str) -> str:
    return f"sso connection {connection_id}"
