"""Owns who may sign in: the users file, and the check of a password against it."""

import hashlib
import hmac
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import structlog

log = structlog.get_logger()


@dataclass(frozen=True)
class AuthenticatedUser:
    """Who signed in, and by which of the user's passwords."""

    username: str
    digest: str
    users: "Users" = field(repr=False)

    def is_known(self) -> bool:
        """Whether that password is valid still."""
        return self.digest in self.users.digests(self.username)


class Users:
    """The users file: `{"app": ["<sha256 hex of a password>", …]}`, each of them valid.

    It is read again when it changes. Passwords are generated with 256 random bits, so a plain hash
    of one tells nothing. A file that cannot be read leaves what was read before in force.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._digests: dict[str, list[str]] = {}
        self._reread()

    def verify(self, username: str, password: str) -> AuthenticatedUser | None:
        """Who it is, or None where name and password do not fit."""
        digest = hashlib.sha256(password.encode()).hexdigest()
        # Every digest is compared, and one for an unknown name too, so that time tells nothing.
        known = self.digests(username) or ["0" * 64]
        matches = [hmac.compare_digest(digest, each) for each in known]
        return AuthenticatedUser(username, digest, self) if any(matches) else None

    def digests(self, username: str) -> list[str]:
        self._reread()
        return self._digests.get(username, [])

    def _reread(self) -> None:
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp == self._seen:
                return
            digests = orjson.loads(self._path.read_bytes())
            self._digests = {str(name): [str(d) for d in each] for name, each in digests.items()}
            self._seen = stamp
        except (OSError, ValueError, AttributeError, TypeError) as error:
            log.warning("users file cannot be read", error=type(error).__name__)
