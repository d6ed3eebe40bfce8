"""One-time tokens: what the control plane signed for one person to fetch here, once."""

from dataclasses import dataclass
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from cell.access.clock import SKEW_MAX_S, Clock
from cell.database import Database
from cell.settings import CellSettings
from specserver import Forbidden, Gone

VERSION = 1
ALGORITHM = "EdDSA"
# The host's clock may be wrong: what has expired is decided by the cell's own.
OPTIONS: Final[jwt.types.Options] = {"verify_exp": False, "verify_iat": False}
KEPT_S = 86_400
_USED = (
    "this URL has already been used, or the access of whoever requested it has ended; request"
    " another one"
)
_ROTATED = "the credential was rotated after this URL was requested; request another one"


@dataclass(frozen=True)
class Claims:
    instance_id: str
    action: str
    jti: str
    expires_at: float
    request_id: str
    issued_at: float | None = None
    name: str = ""
    """The instance's, where the action shows it."""
    holder: str = ""
    """Of what the URL was asked for with: access that lasts is told, and ended, by it."""
    person: str = ""
    """A hash of who asked for it, whatever with: the cell's pools are shared by it."""
    overlap_s: float | None = None
    """How long former credentials still work; None by a control plane that does not say it."""
    database: str = ""
    """To dump; empty: the usual one."""
    backup_id: str = ""
    """To download."""
    migration_id: str = ""
    """Whose source can be sent."""


class Tokens:
    def __init__(self, database: Database, settings: CellSettings, clock: Clock) -> None:
        self._database = database
        self._cell_id = settings.cell_id
        self._key = Ed25519PublicKey.from_public_bytes(settings.control_public_key)
        self._clock = clock

    def check(self, token: str, action: str) -> Claims:
        """Reads the token without using it up; raises Forbidden or Gone."""
        claims = self._read(token)
        if claims is None or claims.action != action:
            raise Forbidden("this URL is not valid for this request", code="bad_token")
        if claims.expires_at <= self._clock.now():
            raise Gone("this URL has expired", code="expired")
        if claims.issued_at is not None and claims.issued_at <= self._rotated_at(claims):
            raise Gone(_ROTATED, code="rotated")
        return claims

    def burn(self, claims: Claims) -> None:
        """Raises Gone for all but the first caller: the row is there, or it is ours."""
        if not self.end(claims.jti, claims.expires_at):
            raise Gone(_USED, code="used")

    def refuse_used(self, claims: Claims) -> None:
        """Raises Gone; for URLs that are used several times until all is done."""
        if self._database.row("SELECT 1 FROM burned WHERE jti = ?", claims.jti):
            raise Gone(_USED, code="used")

    def end(self, jti: str, expires_at: float) -> bool:
        """Whether it could be used until now."""
        ended = self._database.write("INSERT OR IGNORE INTO burned VALUES (?, ?)", jti, expires_at)
        return bool(ended)

    def outdate(self, claims: Claims) -> None:
        """Ends all URLs of the instance that were signed until now: these claims are to rotate.

        By the control plane's time alone, so that none which is signed from now on ends by it.
        """
        at = max(claims.issued_at or 0.0, self._clock.at_least())
        self._database.write("INSERT OR REPLACE INTO rotated VALUES (?, ?)", claims.instance_id, at)

    def outdate_all(self, instance_id: str) -> None:
        """The same for a new credential that nobody asked for, as of data that was lost."""
        self._database.write(
            "INSERT OR REPLACE INTO rotated VALUES (?, ?)", instance_id, self._clock.now()
        )

    def _rotated_at(self, claims: Claims) -> float:
        found = self._database.row(
            "SELECT at FROM rotated WHERE instance_id = ?", claims.instance_id
        )
        at = float(found[0]) if found else 0.0
        # From the future: the control plane's clock was set back meanwhile.
        return at if at <= self._clock.now() + SKEW_MAX_S else 0.0

    def forget_expired(self) -> None:
        """An expired token is refused by its date, so its mark is no longer needed.

        Only what the control plane signed for counts: a host's clock may be ahead for a while.
        """
        before = self._clock.heard_at - KEPT_S
        self._database.write("DELETE FROM burned WHERE expires_at < ?", before)
        self._database.write("DELETE FROM rotated WHERE at < ?", before)

    def _read(self, token: str) -> Claims | None:
        # PyJWT takes padding too: each token is written in one way only.
        if "=" in token:
            return None
        try:
            # The audience: a token that was signed for another cell is not valid here.
            document = jwt.decode(token, self._key, [ALGORITHM], OPTIONS, audience=self._cell_id)
            if document["v"] != VERSION:
                return None
            issued_at, overlap_s = document.get("iat"), document.get("overlap_s")
            return Claims(
                str(document["instance_id"]),
                str(document["action"]),
                str(document["jti"]),
                float(document["exp"]),
                str(document.get("request_id", "")),
                None if issued_at is None else float(issued_at),
                str(document.get("name", "")),
                str(document.get("holder", "")),
                str(document.get("person", "")),
                None if overlap_s is None else float(overlap_s),
                str(document.get("database", "")),
                str(document.get("backup_id", "")),
                str(document.get("migration_id", "")),
            )
        except (jwt.InvalidTokenError, ValueError, KeyError, TypeError):
            return None
