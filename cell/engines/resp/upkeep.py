"""Keeps a start short: what an owner does must not make the server read its data for ever.

Before it answers anybody, a server runs the commands of its log again, and the code of each
function library, for up to half a second each.
"""

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from cell.engines.resp.connection import Answer, RefusalError, RespConnection
from cell.layout import Site
from cell.runtime import log_files

log = structlog.get_logger("cell.resp")

LIBRARIES_MAX = 50
# A list may be megabytes, which to read takes the cell a while.
LIST_EVERY_S = 60.0
# Of a CPU since the log was begun: what it may take at most to run again, and a third of the time
# that a server is given to read its data.
REPLAY_S = 300.0
NAMED_MAX = 10
SLOW_START = (
    "each start runs its log and the code of its function libraries again; restore a backup, or "
    "ask whoever runs this service"
)


@dataclass
class _Seen:
    """Of one instance, as long as this cell runs."""

    names: frozenset[str] = frozenset()
    count: int | None = None
    unlisted: bool = False
    listed_at: float = -math.inf
    rewrite: tuple[str, str] = ("", "")
    worked_s: float = 0.0


@dataclass
class Upkeep:
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def forget(self, site: Site) -> None:
        self._seen.pop(site.instance_id, None)

    async def look(self, connection: RespConnection, site: Site) -> None:
        seen = self._seen.setdefault(site.instance_id, _Seen())
        try:
            await _bound_libraries(connection, site, seen)
        except ValueError:
            # Its owner wrote megabytes of descriptions; the next look deletes without a list.
            seen.unlisted = True
            return
        await _bound_replay(connection, site, seen)


async def _bound_libraries(connection: RespConnection, site: Site, seen: _Seen) -> None:
    """Those that are there at the first look stay: an earlier version of ours had no bound."""
    count = _count(await connection.ask_nested("FUNCTION", "STATS"))
    if count == seen.count:
        return
    if seen.unlisted and count > LIBRARIES_MAX:
        await connection.ask("FUNCTION", "FLUSH")
        _tell(site, "all of them")
        count = 0
    if count and time.monotonic() - seen.listed_at < LIST_EVERY_S:
        return
    names = await _listed(connection, seen) if count else set()
    if seen.count is not None and count > LIBRARIES_MAX:
        room = max(0, LIBRARIES_MAX - len(names & seen.names))
        names -= await _drop(connection, site, sorted(names - seen.names)[room:])
    seen.names, seen.count, seen.unlisted = frozenset(names), len(names), False


async def _listed(connection: RespConnection, seen: _Seen) -> set[str]:
    seen.listed_at = time.monotonic()
    return set(_names(await connection.ask_nested("FUNCTION", "LIST")))


async def _drop(connection: RespConnection, site: Site, names: Sequence[str]) -> set[str]:
    for name in names:
        # Its owner may have been faster.
        with contextlib.suppress(RefusalError):
            await connection.ask("FUNCTION", "DELETE", name)
    if names:
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        _tell(site, f"{', '.join(names[:NAMED_MAX])}{more}")
    return set(names)


def _tell(site: Site, deleted: str) -> None:
    said = f"there were more than {LIBRARIES_MAX} function libraries; deleted: {deleted}"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    log_files.write(site.log, f"{now} menagerie: {said}")
    log.warning("cell.function_libraries_deleted", instance_id=site.instance_id, reason=said)


async def _bound_replay(connection: RespConnection, site: Site, seen: _Seen) -> None:
    """Has the log written anew, as short as the data, once it took long to come to be."""
    told = await connection.info("server", "cpu", "persistence")
    worked_s = float(told["used_cpu_user"]) + float(told["used_cpu_sys"])
    rewrite = (told["run_id"], told["aof_rewrites"])
    if rewrite != seen.rewrite:
        # What a server did to read its log, it would do again.
        again = rewrite[0] == seen.rewrite[0]
        seen.rewrite, seen.worked_s = rewrite, worked_s if again else 0.0
    grown = int(told.get("aof_current_size", 0)) > int(told.get("aof_base_size", 0))
    if grown and worked_s - seen.worked_s > REPLAY_S and told["aof_rewrite_in_progress"] == "0":
        log.info("cell.log_rewritten", instance_id=site.instance_id)
        await connection.ask("BGREWRITEAOF")


def _count(stats: Answer) -> int:
    """As `FUNCTION STATS` tells it: names and values in turn, of each engine again."""
    return sum(
        int(str(_member(figures, "libraries_count")))
        for figures in _sequence(_member(stats, "engines"))[1::2]
    )


def _names(listed: Answer) -> list[str]:
    return [str(_member(each, "library_name")) for each in _sequence(listed)]


def _member(answer: Answer, name: str) -> Answer:
    told = _sequence(answer)
    pairs = zip(told[::2], told[1::2], strict=False)
    return next((value for key, value in pairs if key == name), [])


def _sequence(answer: Answer) -> list[Answer]:
    return answer if isinstance(answer, list) else []
