"""Contents of keys at a source and here: what commands answer, in an order that is everybody's.

What DUMP gives differs between versions, and between servers that were filled in another order.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cell.migrations.errors import MigrationError
from cell.migrations.redis.copying import explained
from cell.migrations.redis.source import ServerSource, Value
from cell.migrations.report import Difference

KEYS_MAX: Final = 2_000
KEYS_AT_ONCE: Final = 100
WITHIN_S: Final = 20.0
# Of memory: of what is larger, the number of keys says that it is there.
VALUE_BYTES_MAX: Final = 64 * 1024
GROUP_BYTES_MAX: Final = 128 * 1024
# Not looked at: clocks may differ.
EXPIRES_SOON_MS: Final = 60_000
Command = tuple[str | bytes, ...]


@dataclass
class KeySample:
    """How many keys were compared, and by database and type the digests of both sides."""

    compared: int = 0
    differing: dict[tuple[int, str], int] = field(default_factory=lambda: defaultdict(int))

    def differences(self) -> list[Difference]:
        return [
            Difference(f"{kind} values of database {database}", "as they are", f"{count} differ")
            for (database, kind), count in sorted(self.differing.items())
        ]


async def sample(
    there: ServerSource, here: ServerSource, databases: Sequence[int], silence_s: float
) -> tuple[KeySample, str]:
    """Of some keys of each database, within some seconds; and a note of how many there were."""
    found = KeySample()
    why = ""
    try:
        async with explained(silence_s), asyncio.timeout(WITHIN_S):
            for number in databases:
                await _of_database(there, here, number, found, KEYS_MAX // len(databases))
    except MigrationError as error:
        why = f"; {error}"
    return found, f"the contents of {found.compared} keys were compared{why}"


async def _of_database(
    there: ServerSource, here: ServerSource, number: int, found: KeySample, most: int
) -> None:
    for each in (there, here):
        await each.ask("SELECT", str(number))
    cursor, left = b"0", most
    while left > 0:
        answer = await there.value("SCAN", cursor, "COUNT", str(KEYS_AT_ONCE))
        if not isinstance(answer, list) or len(answer) != 2:  # noqa: PLR2004
            raise MigrationError("the source answered SCAN in an unknown form")
        cursor = answer[0] if isinstance(answer[0], bytes) else b"0"
        listed = answer[1] if isinstance(answer[1], list) else []
        keys = [key for key in listed if isinstance(key, bytes)][:left]
        await _of_keys(there, here, number, found, keys)
        left -= max(1, len(keys))
        if cursor == b"0":
            break


async def _of_keys(
    there: ServerSource, here: ServerSource, number: int, found: KeySample, keys: list[bytes]
) -> None:
    kinds = await there.values(*(("TYPE", key) for key in keys))
    expire = await there.values(*(("PTTL", key) for key in keys))
    sizes = await here.values(*(("MEMORY", "USAGE", key) for key in keys))
    group: list[tuple[bytes, str, bool]] = []
    taken = 0
    for key, kind, expires, size in zip(keys, kinds, expire, sizes, strict=True):
        named = kind.decode(errors="replace") if isinstance(kind, bytes) else "none"
        soon = isinstance(expires, int) and 0 <= expires < EXPIRES_SOON_MS
        held = size if isinstance(size, int) else 0
        if named not in READS or soon or held > VALUE_BYTES_MAX:
            continue
        if taken + held > GROUP_BYTES_MAX:
            await _compare(there, here, number, found, group)
            group, taken = [], 0
        group.append((key, named, expires == -1))
        taken += held
    await _compare(there, here, number, found, group)


async def _compare(
    there: ServerSource,
    here: ServerSource,
    number: int,
    found: KeySample,
    group: list[tuple[bytes, str, bool]],
) -> None:
    commands = [_reads(kind, key) for key, kind, _ in group]
    expected = await there.values(*commands)
    had = await here.values(*commands)
    kinds = await here.values(*(("TYPE", key) for key, _, _ in group))
    expire = await here.values(*(("PTTL", key) for key, _, _ in group))
    for (_, kind, lasts), one, other, named, expires in zip(
        group, expected, had, kinds, expire, strict=True
    ):
        is_same = named == kind.encode() and lasts == (expires == -1)
        if one is None or one == []:
            continue  # it has expired, or was removed
        found.compared += 1
        if not (is_same and _digest(kind, one) == _digest(kind, other)):
            found.differing[number, kind] += 1


READS: Final[dict[str, Command]] = {
    "string": ("GET",),
    "list": ("LRANGE", "0", "-1"),
    "hash": ("HGETALL",),
    "set": ("SMEMBERS",),
    "zset": ("ZRANGE", "0", "-1", "WITHSCORES"),
    "stream": ("XRANGE", "-", "+"),
}


def _reads(kind: str, key: bytes) -> Command:
    name, *more = READS[kind]
    return (name, key, *more)


def _digest(kind: str, value: Value) -> bytes:
    items: list[Any] = value if isinstance(value, list) else [value]
    if kind == "set":
        items = sorted(items, key=repr)
    elif kind == "hash":
        items = sorted(zip(items[::2], items[1::2], strict=False), key=repr)
    elif kind == "zset":
        # Versions write numbers in other words.
        items = [(_number(each) if place % 2 else each) for place, each in enumerate(items)]
    return hashlib.sha256(repr(items).encode()).digest()


def _number(told: Value) -> float:
    try:
        return float(told) if isinstance(told, bytes) else 0.0
    except ValueError:
        return 0.0
