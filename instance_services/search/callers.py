"""Owns who may do what: the master key, keys with actions, indexes and an end, tenant tokens."""

import hashlib
import hmac
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import jwt
import orjson
import structlog

from instance_services.search.clock import Clock, system_clock, written
from instance_services.search.errors import ApiError

log = structlog.get_logger()

_COLUMNS: Final = "uid, name, description, actions, indexes, expires_at, created_at, updated_at"
_DEFAULTS: Final = (
    ("Default Search API Key", "Use it to search from the frontend", ["search"]),
    (
        "Default Admin API Key",
        "Use it for anything that is not a search operation. Caution!",
        ["*"],
    ),
)


@dataclass(frozen=True)
class KeyBearer:
    """Who asks: what they may do in which indexes, and what a tenant may search."""

    actions: Sequence[str]
    indexes: Sequence[str]
    searches: Mapping[str, Any] | None = field(default=None)

    def may(self, action: str) -> bool:
        group = action.partition(".")[0]
        # Whoever reads keys has what they are worth, so that must be said.
        reading = "*.get" if action.endswith(".get") and group != "keys" else action
        return not {"*", action, f"{group}.*", reading}.isdisjoint(self.actions)

    def may_use(self, index_uid: str) -> bool:
        return _named(self.indexes, index_uid) and (
            self.searches is None or self.rule(index_uid) is not None
        )

    def rule(self, index_uid: str) -> Mapping[str, Any] | None:
        """What a tenant's token says of an index; None where it says nothing."""
        if self.searches is None:
            return {}
        found = [name for name in self.searches if _named([name], index_uid)]
        if not found:
            return None
        return self.searches[max(found, key=len)] or {}

    @property
    def is_limited(self) -> bool:
        return "*" not in self.indexes


MASTER: Final = KeyBearer(("*",), ("*",))


class MasterKeys:
    """The file of master keys: a JSON array, the newest first, each of them valid.

    It is read again when it changes; one that cannot be read leaves the former in force.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._keys: tuple[str, ...] = ()

    def all(self) -> tuple[str, ...]:
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp != self._seen:
                self._keys = tuple(map(str, orjson.loads(self._path.read_bytes())))
                self._seen = stamp
        except (OSError, ValueError, TypeError) as error:
            log.warning("the file of master keys cannot be read", error=type(error).__name__)
        return self._keys


class IssuedKeys:
    """The keys of one instance, over a connection of the caller's thread."""

    def __init__(
        self, connection: sqlite3.Connection, masters: MasterKeys, clock: Clock = system_clock
    ) -> None:
        self._connection = connection
        self._masters = masters
        self._clock = clock

    def caller(self, token: str) -> KeyBearer | None:
        """Whose key or tenant token this is; None where it is nobody's."""
        masters = self._masters.all()
        digest = hashlib.sha256(token.encode()).digest()
        for master in masters:
            if hmac.compare_digest(digest, hashlib.sha256(master.encode()).digest()):
                return MASTER
        if token.count(".") == 2:  # noqa: PLR2004 - the parts of a JWT
            return self._tenant(token, masters)
        for row in self._rows():
            for master in masters:
                if hmac.compare_digest(digest, hashlib.sha256(_value(master, row[0])).digest()):
                    return self._of(row)
        return None

    def make_defaults(self) -> None:
        """Those that an instance has from its first start on."""
        if self._connection.execute("SELECT 1 FROM keys LIMIT 1").fetchone() is None:
            for name, description, actions in _DEFAULTS:
                self.create(
                    {
                        "name": name,
                        "description": description,
                        "actions": actions,
                        "indexes": ["*"],
                        "expiresAt": None,
                    }
                )

    def create(self, given: Mapping[str, Any]) -> dict[str, Any]:
        now = written(self._clock())
        uid = given.get("uid") or str(uuid.uuid4())
        expires_at = self._end(given["expiresAt"])
        try:
            self._connection.execute(
                f"INSERT INTO keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                (
                    *(uid, given.get("name"), given.get("description")),
                    orjson.dumps(given["actions"]).decode(),
                    orjson.dumps(given["indexes"]).decode(),
                    *(expires_at, now, now),
                ),
            )
        except sqlite3.IntegrityError:
            raise ApiError("api_key_already_exists", f"there is a key `{uid}` already") from None
        return self.get(uid)

    def get(self, name: str) -> dict[str, Any]:
        """By its uid, or by the key itself. Raises ApiError."""
        return self._view(self._row(name))

    def page(self, limit: int, offset: int) -> dict[str, Any]:
        rows = self._rows()
        return {
            "results": [self._view(row) for row in rows[offset : offset + limit]],
            "offset": offset,
            "limit": limit,
            "total": len(rows),
        }

    def update(self, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The name and the description; nothing else of a key changes."""
        uid = self._row(name)[0]
        for member in ("name", "description"):
            if member in changes:
                self._connection.execute(
                    f"UPDATE keys SET {member} = ?, updated_at = ? WHERE uid = ?",  # noqa: S608
                    (changes[member], written(self._clock()), uid),
                )
        return self.get(uid)

    def delete(self, name: str) -> None:
        self._connection.execute("DELETE FROM keys WHERE uid = ?", (self._row(name)[0],))

    def _rows(self) -> list[Sequence[Any]]:
        sql = f"SELECT {_COLUMNS} FROM keys ORDER BY created_at DESC, uid"  # noqa: S608 - ours
        return self._connection.execute(sql).fetchall()

    def _row(self, name: str) -> Sequence[Any]:
        masters = self._masters.all()
        for row in self._rows():
            values = [row[0], *(_value(master, row[0]).decode() for master in masters)]
            if any(hmac.compare_digest(name.encode(), each.encode()) for each in values):
                return row
        raise ApiError("api_key_not_found", f"there is no key `{name[:200]}`")

    def _view(self, row: Sequence[Any]) -> dict[str, Any]:
        uid, name, description, actions, indexes, expires_at, created_at, updated_at = row
        masters = self._masters.all()
        return {
            "name": name,
            "description": description,
            "key": _value(masters[0], uid).decode() if masters else "",
            "uid": uid,
            "actions": orjson.loads(actions),
            "indexes": orjson.loads(indexes),
            "expiresAt": expires_at,
            "createdAt": created_at,
            "updatedAt": updated_at,
        }

    def _of(self, row: Sequence[Any]) -> KeyBearer | None:
        if row[5] is not None and datetime.fromisoformat(row[5]) <= self._clock():
            return None
        return KeyBearer(orjson.loads(row[3]), orjson.loads(row[4]))

    def _end(self, text: str | None) -> str | None:
        if text is None:
            return None
        try:
            end = datetime.fromisoformat(text)
        except ValueError:
            end = None
        if end is not None and end.tzinfo is None:
            end = end.replace(tzinfo=self._clock().tzinfo)
        if end is None or end <= self._clock():
            raise ApiError(
                "invalid_api_key_expires_at",
                "expiresAt is an instant in the future, as in 2042-04-02T00:42:42Z, or null",
            )
        return written(end)

    def _tenant(self, token: str, masters: Sequence[str]) -> KeyBearer | None:
        """A JWT that is signed with a key which may search; it can do nothing else."""
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
            row = next((row for row in self._rows() if row[0] == claims.get("apiKeyUid")), None)
        except jwt.PyJWTError:
            return None
        parent = None if row is None else self._of(row)
        if row is None or parent is None or not parent.may("search"):
            return None
        for master in masters:
            try:
                checked = jwt.decode(
                    token,
                    _value(master, row[0]),
                    algorithms=["HS256", "HS384", "HS512"],
                    options={"verify_exp": False},
                )
            except jwt.PyJWTError:
                continue
            end = checked.get("exp")
            if end is not None and not self._is_ahead(end):
                return None
            rules = _rules(checked.get("searchRules"))
            return None if rules is None else KeyBearer(("search",), parent.indexes, rules)
        return None

    def _is_ahead(self, end: Any) -> bool:
        return isinstance(end, int | float) and self._clock().timestamp() < end


def _rules(given: Any) -> dict[str, Any] | None:
    """By index, as an object or a list of names; None where it is neither."""
    if isinstance(given, list) and all(isinstance(each, str) for each in given):
        return dict.fromkeys(given, None)
    if not isinstance(given, dict):
        return None
    if all(each is None or isinstance(each, dict) for each in given.values()):
        return given
    return None


def _named(patterns: Sequence[str], uid: str) -> bool:
    """Whether an index is meant: by its uid, by `*`, or by its beginning and `*`."""
    return any(
        pattern == uid or (pattern.endswith("*") and uid.startswith(pattern[:-1]))
        for pattern in patterns
    )


def _value(master: str, uid: str) -> bytes:
    return hmac.new(master.encode(), uid.encode(), hashlib.sha256).hexdigest().encode()
