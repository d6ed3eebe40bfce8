"""Scheduled events after a log was applied: enabled or not as at the moment that it leads to.

A replica disables what it creates or changes, so that it runs at its master only. What it was is
read from the statements.
"""

import mmap
import re
import struct
from typing import Any, Final

from cell.engines.mysql import binary_log

QUERY: Final = 2
# After an event's header: the session, how long it took, lengths of the database's name, of the
# error and of the session's variables.
_QUERY: Final = struct.Struct("<IIBHH")
CHECKSUM_BYTES: Final = 4
ON_REPLICA: Final = "SLAVESIDE_DISABLED"
_NAME: Final = rb"(`(?:[^`]|``)+`|[\w$\x80-\xff]+)"
_CHANGE: Final = re.compile(
    rb"\W*(CREATE|ALTER)\s(?:(?:(?!\sDO\s).)*?\s)??EVENT\s+(?:IF\s+NOT\s+EXISTS\s+)?"
    rb"(?:" + _NAME + rb"\s*\.\s*)?" + _NAME,
    re.IGNORECASE | re.DOTALL,
)
# What may hold any word: a name in quotes, a text, a comment. One that is not closed goes on to the
# end, and is not looked at again from each quote in it.
_OPAQUE: Final = re.compile(
    rb"(?P<name>`(?:[^`]|``)*+(?:`|\Z))"
    rb"|'(?:[^'\\]|\\.|'')*+(?:'|\\?\Z)|\"(?:[^\"\\]|\\.|\"\")*+(?:\"|\\?\Z)"
    rb"|/\*(?P<run>M?!(?P<version>\d{0,6}))?(?P<inside>.*?)(?:\*/|\Z)"
    rb"|(?P<line>(?:#|--(?=\s))[^\n]*)",
    re.DOTALL,
)
# Comments for these versions are MySQL's alone.
MYSQL_ALONE: Final = range(50700, 100_000)
_BODY: Final = re.compile(rb"\bDO\b", re.IGNORECASE)
_STATUS: Final = re.compile(rb"\b(ENABLE|DISABLE)\b(\s+ON\s+(?:SLAVE|REPLICA)\b)?", re.IGNORECASE)
_RENAMED: Final = re.compile(
    rb"\bRENAME\s+TO\s+(?:" + _NAME + rb"\s*\.\s*)?" + _NAME, re.IGNORECASE
)
# Much longer ones are looked at up to here: what matters comes before what the event does.
STATEMENT_BYTES_MAX: Final = 2**16

Key = tuple[str, str]


class ReplayedEvents:
    """The status of each by its schema and its name, in the order of the log."""

    def __init__(self) -> None:
        self._changes: list[tuple[bytes, bytes]] = []
        self._known: dict[Key, str] = {}

    def read(self, content: mmap.mmap | bytes, begins: int) -> None:
        """What a file of the log says from a place on."""
        for offset, kind, _, length in binary_log.events(content):
            if kind == QUERY and offset >= begins:
                schema, statement = query(content, offset, length)
                if b"EVENT" in statement.upper() and _CHANGE.match(words := words_of(statement)):
                    self._changes.append((schema, words))

    def begin(self, cursor: Any) -> None:
        """With what there is before the log is applied."""
        cursor.execute("SELECT db, name, status FROM mysql.event")
        self._known = {_key(schema, name): status for schema, name, status in cursor.fetchall()}
        for schema, statement in self._changes:
            self._note(schema, statement)

    def end(self, cursor: Any) -> None:
        """Once it is applied. One of which the log does not say how it was stays off."""
        cursor.execute("SELECT db, name FROM mysql.event WHERE status = %s", [ON_REPLICA])
        for schema, name in cursor.fetchall():
            status = self._known.get(_key(schema, name), "DISABLED")
            cursor.execute(
                "UPDATE mysql.event SET status = %s WHERE db = %s AND name = %s",
                [status, schema, name],
            )

    def _note(self, default: bytes, statement: bytes) -> None:
        found = _CHANGE.match(statement)
        assert found is not None
        verb, schema, name = found.groups()
        key = _key(_plain(schema or default), _plain(name))
        options = _BODY.split(statement[found.end() :], maxsplit=1)[0]
        told = _STATUS.search(options)
        if told is not None:
            on_replica, is_enabled = told[2], told[1].upper() == b"ENABLE"
            self._known[key] = "ENABLED" if is_enabled else "DISABLED"
            if on_replica:
                self._known[key] = ON_REPLICA
        elif verb.upper() == b"CREATE":
            self._known[key] = "ENABLED"
        if (renamed := _RENAMED.search(options)) is not None and key in self._known:
            new = _key(_plain(renamed[1] or schema or default), _plain(renamed[2]))
            self._known[new] = self._known.pop(key)


def query(content: mmap.mmap | bytes, offset: int, length: int) -> tuple[bytes, bytes]:
    """Of such an event, with its checksum: the database of its session, and the statement."""
    place, end = offset + binary_log.EVENT.size, offset + length - CHECKSUM_BYTES
    if place + _QUERY.size > end:
        return b"", b""
    _, _, schema_bytes, _, variables_bytes = _QUERY.unpack_from(content, place)
    place += _QUERY.size + variables_bytes
    schema = content[place : place + schema_bytes]
    place += schema_bytes + 1
    return schema, content[place : min(end, place + STATEMENT_BYTES_MAX)]


def words_of(statement: bytes, *, within: bool = False) -> bytes:
    """Without texts and comments, but for what the server runs of the latter."""

    def shown(found: re.Match[bytes]) -> bytes:
        if found["name"] is not None:
            return found[0]
        if found["inside"] is None and found["line"] is None:
            return b"''"
        if found["run"] is None or within or int(found["version"] or 0) in MYSQL_ALONE:
            return b" "
        return b" " + words_of(found["inside"], within=True) + b" "

    return _OPAQUE.sub(shown, statement)


def _plain(name: bytes) -> str:
    if name.startswith(b"`"):
        name = name[1:-1].replace(b"``", b"`")
    return name.decode(errors="replace")


def _key(schema: str, name: str) -> Key:
    """Names of events are the same in upper and lower case."""
    return schema, name.casefold()
