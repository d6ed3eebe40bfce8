"""Proofs of who someone is: passwords (argon2), one-time codes (TOTP), and bearer tokens."""

import hashlib
import hmac
import secrets
import string
import zlib
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final, Literal

import pyotp
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

API_KEY_PREFIX = "mk_live_"
SESSION_PREFIX = "ms_"
INVITE_PREFIX = "mi_"
RESET_PREFIX = "mp_"
EMAIL_PREFIX = "mv_"
SCIM_PREFIX = "mscim_"
TOTP_DIGITS = 6
TOTP_STEP_S = 30
# A clock one step off on either side is common on phones.
TOTP_STEPS_EITHER_SIDE = 1

RECOVERY_CODES: Final = 10
_RECOVERY_LETTERS: Final = "0123456789abcdefghjkmnpqrstvwxyz"
"""Of Crockford's base 32: without those that are read as others."""
_RECOVERY_GROUPS: Final = 4
_RECOVERY_GROUP: Final = 4
_MISREAD: Final = str.maketrans({"o": "0", "i": "1", "l": "1", "-": ""})

_SHOWN = 12
_RANDOM_BITS = 256
_RANDOM_LENGTH = 43  # digits of base 62 that hold 256 bits
_CHECKSUM_LENGTH = 6  # digits of base 62 that hold a CRC32
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase

# 19 MiB and two passes take about 20 ms: the least that OWASP asks of argon2id.
PASSWORDS: Final = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
_passwords = PASSWORDS

TokenKind = Literal["api_key", "session"]


@dataclass(frozen=True)
class Token:
    """A bearer token just made. Only `prefix` and `sha256` may be stored."""

    secret: str = field(repr=False)
    prefix: str
    sha256: str


def new_api_key() -> Token:
    return _new_token(API_KEY_PREFIX)


def new_session_token() -> Token:
    return _new_token(SESSION_PREFIX)


def new_invite_token() -> Token:
    """Good once, for whoever has it: it is no bearer token."""
    return _new_token(INVITE_PREFIX)


def new_password_reset_token() -> Token:
    """As that of an invite."""
    return _new_token(RESET_PREFIX)


def new_email_token() -> Token:
    """As that of an invite."""
    return _new_token(EMAIL_PREFIX)


def new_scim_token() -> Token:
    """What an identity provider pushes with: good for SCIM, and for nothing else of the API."""
    return _new_token(SCIM_PREFIX)


def is_scim_token(secret: str) -> bool:
    """Whether it is well-formed. Needs no database."""
    return _is_token(secret, SCIM_PREFIX)


def token_sha256(secret: str) -> str:
    """Hex, as stored. The token has 256 random bits, so a fast hash gives nothing away."""
    return hashlib.sha256(secret.encode()).hexdigest()


def token_kind(secret: str) -> TokenKind | None:
    """What a well-formed token is; None when its shape or checksum is wrong. Needs no database."""
    return next((kind for prefix, kind in _KINDS if _is_token(secret, prefix)), None)


def _is_token(secret: str, prefix: str) -> bool:
    length = len(prefix) + _RANDOM_LENGTH + _CHECKSUM_LENGTH
    if not secret.startswith(prefix) or len(secret) != length or not secret.isascii():
        return False
    body, checksum = secret[:-_CHECKSUM_LENGTH], secret[-_CHECKSUM_LENGTH:]
    return hmac.compare_digest(_checksum(body), checksum)


_KINDS: tuple[tuple[str, TokenKind], ...] = (
    (API_KEY_PREFIX, "api_key"),
    (SESSION_PREFIX, "session"),
)


def _new_token(prefix: str) -> Token:
    body = prefix + _base62(secrets.randbits(_RANDOM_BITS), _RANDOM_LENGTH)
    secret = body + _checksum(body)
    return Token(secret=secret, prefix=secret[:_SHOWN], sha256=token_sha256(secret))


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECKSUM_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_BASE62[digit])
    return "".join(reversed(digits))


def hash_password(password: str) -> str:
    return _passwords.hash(password)


def verify_password(password_hash: str | None, password: str) -> bool:
    """Whether the password is right. None (no such user) takes as long as a wrong password."""
    try:
        _passwords.verify(password_hash or _nobodys_hash(), password)
    except (VerificationError, InvalidHashError):
        return False
    return password_hash is not None


def password_needs_rehash(password_hash: str) -> bool:
    return _passwords.check_needs_rehash(password_hash)


@lru_cache(maxsize=1)
def _nobodys_hash() -> str:
    return _passwords.hash(secrets.token_urlsafe(16))


def new_totp_secret() -> str:
    return pyotp.random_base32()


def totp_uri(secret: str, email: str, issuer: str = "Menagerie") -> str:
    """What an authenticator app reads from a QR code."""
    return pyotp.TOTP(secret).provisioning_uri(name=email, issuer_name=issuer)


def new_recovery_code() -> str:
    """80 random bits, in groups as people write them down: no hash of it can be reversed."""
    return "-".join(
        "".join(secrets.choice(_RECOVERY_LETTERS) for _ in range(_RECOVERY_GROUP))
        for _ in range(_RECOVERY_GROUPS)
    )


def is_recovery_code(code: str) -> bool:
    """Whether it is one, right or wrong, and not the six digits of an app."""
    return len(code) > TOTP_DIGITS


def recovery_code_sha256(user_id: str, code: str) -> str:
    """Hex, as stored: of the code however it was typed, and of one user."""
    return token_sha256(f"{user_id}:{code.lower().translate(_MISREAD)}")


def verify_totp(secret: str, code: str, at: datetime, last_step: int | None = None) -> int | None:
    """The step the code belongs to, to be stored; None when it is wrong or was used before.

    A code is good once: steps up to `last_step` are refused, so a code read over a shoulder or
    from a log is worth nothing.
    """
    totp = pyotp.TOTP(secret, interval=TOTP_STEP_S)
    current = int(at.timestamp()) // TOTP_STEP_S
    found = None
    for step in range(current - TOTP_STEPS_EITHER_SIDE, current + TOTP_STEPS_EITHER_SIDE + 1):
        right = hmac.compare_digest(totp.at(step * TOTP_STEP_S).encode(), code.encode())
        if right and (last_step is None or step > last_step):
            found = step
    return found
