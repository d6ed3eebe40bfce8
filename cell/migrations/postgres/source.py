"""The server that has the data, as the tools of an instance reach it through the conduit."""

import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager

from cell.migrations import conduit as conduits
from cell.migrations.conduit import Conduit
from cell.migrations.errors import MigrationError, SourceUnreachableError
from cell.migrations.postgres import psql
from cell.migrations.postgres.psql import DatabasePlace, PsqlSession, QueryError
from cell.migrations.postgres.tables import ALIKE
from cell.migrations.postgres.target import PostgresTarget
from cell.runtime.confined_tools import ConfinedToolError
from cell.runtime.confinement import Mount
from cell.runtime.engine_folders import INSIDE
from cell.runtime.host import Host

_SNAPSHOT = re.compile(r"[0-9A-Fa-f-]{1,64}")
REPEATABLE = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresSource:
    """Its tools run in the sandbox of the instance, with the programs of its version."""

    def __init__(self, conduit: Conduit, target: PostgresTarget, folder: str, mount: Mount) -> None:
        uri = conduit.source
        self.conduit = conduit
        self.toolbox = target.toolbox
        self._psql = target.program("psql")
        self._place = psql.place(folder, uri.user, uri.password, uri.database, (mount,))

    def place(self) -> DatabasePlace:
        return self._place

    @contextlib.asynccontextmanager
    async def session(self, words: Sequence[str] = ()) -> AsyncIterator[PsqlSession]:
        """Raises SourceUnreachableError where nobody answers as it should."""
        with self.explained():
            async with psql.session(self.toolbox, self._psql, self._place, words) as asked:
                await asked.run(*ALIKE)
                yield asked

    def writing(self) -> AbstractAsyncContextManager[PsqlSession]:
        """Its errors begin with the code of what is wrong."""
        return self.session(("-v", "VERBOSITY=verbose"))

    def replication(self) -> AbstractAsyncContextManager[PsqlSession]:
        """A connection that makes slots. Nothing that the source said comes into what it is asked.

        A further statement would end the snapshot of a slot, and so psql tells where answers end.
        """
        words = ["-d", "replication=database"]
        return psql.session(self.toolbox, self._psql, self._place, words, is_restricted=False)

    @contextlib.asynccontextmanager
    async def in_snapshot(self, snapshot: str) -> AsyncIterator[PsqlSession]:
        """Sees what was there when the snapshot was taken, for as long as whoever took it lives."""
        async with self.session() as asked:
            # Nothing is asked in between, or it would be too late for a snapshot.
            await asked.run(f"{REPEATABLE}; SET TRANSACTION SNAPSHOT '{snapshot}'")
            yield asked

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """What went wrong on the way there is said in place of what the tool noticed of it."""
        try:
            yield
        except (QueryError, ConfinedToolError) as error:
            if (why := self.conduit.failure) is not None:
                raise SourceUnreachableError(why) from error
            if isinstance(error, ConfinedToolError):
                raise MigrationError(psql.said(str(error))) from error
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            # It is JSON, and of another form than what was asked for.
            raise MigrationError("the source gave an answer that cannot be read") from error


class LastingSession:
    """One connection for questions that are asked again and again; made anew after a failure."""

    def __init__(self, source: PostgresSource) -> None:
        self._source = source
        self._stack = contextlib.AsyncExitStack()
        self._asked: PsqlSession | None = None

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[PsqlSession]:
        """As the source's own."""
        try:
            with self._source.explained():
                if self._asked is None:
                    self._asked = await self._stack.enter_async_context(self._source.session())
                yield self._asked
        except BaseException:
            await self.end()
            raise

    async def end(self) -> None:
        self._asked = None
        await self._stack.aclose()


def snapshot_name(said: object) -> str:
    """As it can stand in a statement; the source says it."""
    if _SNAPSHOT.fullmatch(str(said)) is None:
        raise MigrationError("the source gave a snapshot a name that no PostgreSQL gives")
    return str(said)


@contextlib.asynccontextmanager
async def opened(
    host: Host, conduit: Conduit, target: PostgresTarget
) -> AsyncIterator[PostgresSource]:
    """For as long as the block lasts."""
    site = target.instance.site
    folder = conduits.folder_of(site)
    async with conduits.opened(conduit, folder, host.owner(site)):
        inside = INSIDE / "source"
        seen = inside if host.hides_files else folder
        mount = Mount(folder.resolve(), inside, writable=False)
        yield PostgresSource(conduit, target, str(seen), mount)
