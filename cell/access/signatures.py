"""Requests of the control plane: believed by their signature, here, once, and while fresh."""

import base64
import binascii
import hashlib
import re

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from cell.access.clock import Clock
from cell.database import Database
from cell.settings import CellSettings
from specserver import Request, Unauthenticated

CHALLENGE = "Menagerie-Challenge"
_NEEDED = ("Menagerie-Cell", "Menagerie-Timestamp", "Menagerie-Nonce", "Menagerie-Signature")
_NONCE = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")
_OF_NOTHING = hashlib.sha256().digest()


class Signatures:
    """Knows the public key alone: whoever reads the cell cannot sign.

    Nor can it pass on to another cell what was signed for it, as the signature names the cell.
    """

    def __init__(self, database: Database, settings: CellSettings, clock: Clock) -> None:
        self._database = database
        self._cell_id = settings.cell_id
        self._key = Ed25519PublicKey.from_public_bytes(settings.control_public_key)
        self._clock = clock

    def verify(self, request: Request) -> None:
        """Raises Unauthenticated for a head that the control plane did not just send to this cell.

        The signature covers the digest that the head gives of the body, so that nothing of a
        stranger's body has to be held. `check_body` compares it, once the body is there.
        """
        given = request.headers
        lacking = [name for name in _NEEDED if name not in given]
        if lacking:
            detail = f"the request is not signed: it has no {', '.join(lacking)}"
            raise Unauthenticated(detail, code="not_signed")
        cell_id, timestamp, nonce, signature = (given[name] for name in _NEEDED)
        challenge = given.get(CHALLENGE, "")
        digest = _digest_told(request)
        # The cell first: what was signed when signatures named none has a method there.
        lines = [cell_id, request.method, _target(request), digest.hex(), timestamp, nonce]
        if challenge:
            lines.append(challenge)
        self._check(decode(signature), "\n".join(lines).encode())
        # Only what was signed is believed: the cell, the moment and the nonce come after that.
        if cell_id != self._cell_id:
            raise Unauthenticated(
                f"the request was signed for {cell_id}, and this is {self._cell_id}; the URL that"
                " the control plane has for one of them leads to the other",
                code="wrong_cell",
            )
        self._check_fresh(timestamp, nonce, challenge)

    def check_body(self, request: Request, body: bytes) -> None:
        """Raises Unauthenticated for another body than was signed."""
        if hashlib.sha256(body).digest() != _digest_told(request):
            raise _not_signed_so()

    def _check(self, signature: bytes, signed: bytes) -> None:
        try:
            self._key.verify(signature, signed)
        except InvalidSignature as error:
            raise _not_signed_so() from error

    def _check_fresh(self, timestamp: str, nonce: str, challenge: str) -> None:
        """By the clock, or by a challenge of ours: then it is the clock that was wrong."""
        clock = self._clock
        if not timestamp.isdecimal() or not _NONCE.fullmatch(nonce):
            raise Unauthenticated("the signature is not current", code="stale_signature")
        signed_at = int(timestamp)
        proven = clock.answered(challenge)
        if not proven and not clock.is_fresh(signed_at):
            headers = {CHALLENGE: clock.challenge()}
            raise Unauthenticated(
                "the signature is not current", code="stale_signature", headers=headers
            )
        # In the database, or a restart of the cell would let the last minute be said again.
        if not self._database.note("INSERT OR IGNORE INTO heard VALUES (?, ?)", nonce, signed_at):
            raise Unauthenticated("the request was already used", code="replayed")
        if proven:
            clock.learn(signed_at, challenge)
        else:
            clock.hear(signed_at)

    def forget_old(self) -> None:
        """What the clock refuses by its date. By signed times alone: no clock can undo that."""
        self._database.note("DELETE FROM heard WHERE signed_at < ?", self._clock.floor)


def last_heard(database: Database) -> int:
    """The latest moment a request was signed for that was believed; 0 before the first."""
    (found,) = database.row("SELECT max(signed_at) FROM heard") or (None,)
    return int(found or 0)


def decode(text: str) -> bytes:
    """base64url without padding; empty for what is not that, which no signature is.

    Each value is written in one way only: the last bits that mean nothing are zero.
    """
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
    return raw if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == text else b""


def _digest_told(request: Request) -> bytes:
    """What the head says is the SHA-256 of the body (RFC 9530); without it, that of no body."""
    told = request.headers.get("Content-Digest")
    if told is None:
        return _OF_NOTHING
    found = _DIGEST.fullmatch(told)
    if found is None:
        raise Unauthenticated(
            "Content-Digest must be sha-256=:, the digest in base64 and a colon",
            code="bad_signature",
        )
    return base64.b64decode(found[1])


def _not_signed_so() -> Unauthenticated:
    return Unauthenticated("the signature does not match the request", code="bad_signature")


def _target(request: Request) -> str:
    raw = request.scope.get("raw_path") or request.path.encode()
    path: str = raw.partition(b"?")[0].decode("latin-1")
    return f"{path}?{request.query_string}" if request.query_string else path
