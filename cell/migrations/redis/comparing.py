"""A source and what has come of it are compared, at the same point of its history."""

from dataclasses import dataclass
from typing import Any, Final

from cell.engines.contents import Contents
from cell.engines.driver import EngineError
from cell.engines.resp import keyspace
from cell.engines.resp.connection import connected
from cell.engines.resp.keyspace import KeyCounts
from cell.instances.verification import ScratchInstance
from cell.migrations.conduit import Conduit
from cell.migrations.errors import MigrationError
from cell.migrations.redis import sampling
from cell.migrations.redis.copying import explained
from cell.migrations.redis.facts import RedisFacts
from cell.migrations.redis.source import local_source, logged_in
from cell.migrations.report import Difference, verification

NONE: Final = KeyCounts(0, 0)


@dataclass(frozen=True)
class Comparison:
    contents: Contents
    databases: int
    keys: int
    differences: list[Difference]
    notes: list[str]

    def told(self) -> dict[str, Any]:
        return verification(self.databases, self.keys, self.differences, self.notes)


async def check(scratch: ScratchInstance) -> None:
    """Raises EngineError where it did not run all that it was given, or has no room for more."""
    async with connected(str(scratch.site.socket), scratch.login) as connection:
        said = await connection.info()
    refused = int(said.get("unexpected_error_replies", "0"))
    if refused:
        raise EngineError(f"it cannot run {refused} of the commands that the source has run")
    used, most = int(said.get("used_memory", "0")), int(said.get("maxmemory", "0"))
    if used > most > 0:
        raise EngineError(
            f"the data takes {used} bytes of memory, and the size has room for {most}; cancel, and "
            "choose a larger size (resize)"
        )


async def compare(
    scratch: ScratchInstance, facts: RedisFacts, conduit: Conduit, silence_s: float
) -> Comparison:
    """With what the scratch engine has, where nothing expires by itself."""
    await check(scratch)
    async with connected(str(scratch.site.socket), scratch.login) as connection:
        said = await connection.info("keyspace")
    here, there = keyspace.counts(said), facts.counts
    differences = [
        Difference(f"database {number}", str(there.get(number, NONE)), str(here.get(number, NONE)))
        for number in sorted({*here, *there})
        if here.get(number) != there.get(number)
    ]
    keys = sum(each.keys for each in there.values())
    notes: list[str] = []
    if keys:
        found, note = await _sample(scratch, sorted(there), conduit, silence_s)
        differences += found
        notes.append(note)
    return Comparison(keyspace.contents(said), len(there), keys, differences, notes)


async def _sample(
    scratch: ScratchInstance, databases: list[int], conduit: Conduit, silence_s: float
) -> tuple[list[Difference], str]:
    try:
        async with (
            explained(silence_s),
            logged_in(conduit, silence_s) as there,
            local_source(str(scratch.site.socket), scratch.login, silence_s) as here,
        ):
            found, note = await sampling.sample(there, here, databases, silence_s)
    except MigrationError as error:
        return [], f"the contents of no keys were compared; {error}"
    return found.differences(), note
