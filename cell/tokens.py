"""One-time tokens: what the control plane signed for one person to fetch here, once."""

from dataclasses import dataclass
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from cell.clock import Clock
from cell.database import Database
from specserver import Forbidden, Gone

VERSION = 1
ALGORITHM = "EdDSA"
# The host's clock may be wrong: what has expired is decided by the cell's own.
OPTIONS: Final[jwt.types.Options] = {"verify_exp": False}
KEPT_S = 86_400
_USED = (
    "this URL has already been used, or the access of whoever requested it has ended; request"
    " another one"
)


@dataclass(frozen=True)
class Claims:
    instance_id: str
    action: str
    jti: str
    expires_at: float
    request_id: str
    name: str = ""
    """The instance's, where the action shows it."""
    holder: str = ""
    """Of what the URL was asked for with: access that lasts is told, and ended, by it."""
    person: str = ""
    """A hash of who asked for it, whatever with: the cell's pools are shared by it."""


class Tokens:
    def __init__(self, database: Database, public_key: bytes, clock: Clock) -> None:
        self._database = database
        self._key = Ed25519PublicKey.from_public_bytes(public_key)
        self._clock = clock

    def check(self, token: str, action: str) -> Claims:
        """Reads the token without using it up; raises Forbidden or Gone."""
        claims = self._read(token)
        if claims is None or claims.action != action:
            raise Forbidden("this URL is not valid for this request", code="bad_token")
        if claims.expires_at <= self._clock.now():
            raise Gone("this URL has expired", code="expired")
        return claims

    def burn(self, claims: Claims) -> None:
        """Raises Gone for all but the first caller: the row is there, or it is ours."""
        if not self.end(claims.jti, claims.expires_at):
            raise Gone(_USED, code="used")

    def end(self, jti: str, expires_at: float) -> bool:
        """Whether it could be used until now."""
        ended = self._database.write("INSERT OR IGNORE INTO burned VALUES (?, ?)", jti, expires_at)
        return bool(ended)

    def forget_expired(self) -> None:
        """An expired token is refused by its date, so its mark is no longer needed.

        Only what the control plane signed for counts: a host's clock may be ahead for a while.
        """
        before = self._clock.heard_at - KEPT_S
        self._database.write("DELETE FROM burned WHERE expires_at < ?", before)

    def _read(self, token: str) -> Claims | None:
        # PyJWT takes padding too: each token is written in one way only.
        if "=" in token:
            return None
        try:
            document = jwt.decode(token, self._key, [ALGORITHM], OPTIONS)
            if document["v"] != VERSION:
                return None
            return Claims(
                str(document["instance_id"]),
                str(document["action"]),
                str(document["jti"]),
                float(document["exp"]),
                str(document.get("request_id", "")),
                str(document.get("name", "")),
                str(document.get("holder", "")),
                str(document.get("person", "")),
            )
        except (jwt.InvalidTokenError, ValueError, KeyError, TypeError):
            return None
