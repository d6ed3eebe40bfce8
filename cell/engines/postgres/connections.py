"""How the driver speaks to a server: over its socket, with a password, as itself."""

import asyncio
import contextlib
import math
import weakref
from collections.abc import AsyncIterator

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.rows import TupleRow

from cell.engines.driver import Login, NewLoginError
from cell.engines.postgres import scram
from cell.engines.postgres.configuration import PORT, SOCKET
from cell.engines.postgres.scram import Keys
from cell.runtime import relay
from cell.runtime.engine_files import EnginePath
from cell.runtime.relay import LimitedRelay
from gateway import sockets

CONNECT_TIMEOUT_S = 10
# The client library's version from which on it logs in with keys.
TAKES_KEYS = 180_000
VERIFIER = "SELECT rolpassword FROM pg_catalog.pg_authid WHERE rolname = SESSION_USER"
# How long a statement of ours waits for an owner's transaction before that one is ended.
PATIENCE_S = 1.0
# How often it is found waiting until sessions count as such that do not end.
LOOKS_MAX = 5
# Of all that a database with tenants' code in it may answer the superuser: names, and errors.
ADMINISTRATION_BYTES_MAX = 64 * 2**20
# Of what a server says to a login that is only tried.
OWNERS_BYTES_MAX = 2**20
# Nothing of a tenant's runs there: nobody but the superuser makes anything in it.
OURS = "postgres"
# Where clients go; an owner's session may hold a lock on it.
CLIENTS = "app"
CLIENTS_WITHIN_S = 2.0
# Owners may set defaults for their database and their roles, which must not bend what we do.
ANYBODYS = (
    *(
        "search_path=pg_catalog,pg_temp",
        "role=none",
        "default_transaction_read_only=off",
        "statement_timeout=0",
    ),
    *("lock_timeout=10s", "idle_in_transaction_session_timeout=0", "local_preload_libraries="),
    *("client_min_messages=warning", "standard_conforming_strings=on", "synchronous_commit=on"),
    *("client_encoding=utf8", "idle_session_timeout=0"),
    *("quote_all_identifiers=off", "transform_null_equals=off"),
)
# What the superuser does is not shown to those who may see what sessions do.
SUPERUSERS = (
    *ANYBODYS,
    *("row_security=off", "session_replication_role=origin", "track_activities=off"),
    *("pg_stat_statements.track=none",),
)
# Whoever reads what is decoded may take his time, and a small instance has little memory.
DECODERS = ("wal_sender_timeout=0", "logical_decoding_work_mem=4MB")
# No server before takes them.
SINCE_17 = ("transaction_timeout=0", "event_triggers=off")
END_BLOCKERS = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
WHERE pid = ANY (pg_catalog.pg_blocking_pids(%s)) AND usename IS DISTINCT FROM %s
"""
# What is between two encodings of which no text can be brought from one to the other. A database of
# an encoding without a way to UTF-8 is read as it is: names of ours are the same in each.
NO_CONVERSION = "conversion between"
AS_IT_IS = "client_encoding=sql_ascii"
# psycopg has no code for what a server says before it lets somebody in; its messages are English.
SAID = "FATAL:"
WRONG_PASSWORD = "password authentication failed"  # noqa: S105 - what it says
NOT_NOW = "the database system is"
SHUTDOWN = "57P"
FULL = ("too many clients already", "remaining connection slots are reserved")
# What one session can use up for all others, as with locks; it is not let go by itself.
EXHAUSTED = ("out of shared memory", "out of memory")
# What a server says of a login and not of itself.
OF_A_LOGIN = (
    *(WRONG_PASSWORD, "permission denied for database", "does not exist"),
    *("is not permitted to log in", "too many connections for", "could not access file"),
)
# What keeps a client out and is no setting of its database or its role.
NOT_BY_SETTINGS = (
    *(*FULL, *EXHAUSTED, WRONG_PASSWORD, "permission denied for database", "does not exist"),
    *("too many connections for", "timeout expired", "could not fork"),
)


class LoginError(NewLoginError):
    """A login that was just made does not work."""


class WrongPasswordError(psycopg.OperationalError):
    """The server has another password for a login."""


class PostgresHeldUpError(Exception):
    """A session that does not end when it is told to keeps a statement of ours waiting."""


class MessageTooLargeError(Exception):
    """The server said more at once than is read."""


class NotRunningError(Exception):
    """Nobody answers on the socket, or not yet."""


@contextlib.asynccontextmanager
async def administration(
    folder: EnginePath,
    login: Login,
    database: str = OURS,
    *,
    major: int = 0,
    limits: tuple[str, ...] = (),
    keys: Keys | None = None,
) -> AsyncIterator[psycopg.AsyncConnection[TupleRow]]:
    """As the superuser, each statement by itself. `folder` is that of the socket.

    `major` is the server's version, for any database but `postgres`: there owners have settings,
    and code of theirs may run and answer. `keys` are those of the login, where they are known.
    """
    settings = (*SUPERUSERS, *(SINCE_17 if major >= 17 else ()), *limits)  # noqa: PLR2004 - a version
    async with contextlib.AsyncExitStack() as stack:
        server: EnginePath | LimitedRelay = folder
        if database != OURS:
            bounded = relay.opened(folder / SOCKET, bytes_max=ADMINISTRATION_BYTES_MAX)
            server = await stack.enter_async_context(bounded)
        try:
            connection = await connect(server, login, database, settings, keys)
        except psycopg.OperationalError as error:
            if NO_CONVERSION not in str(error):
                raise
            connection = await connect(server, login, database, (*settings, AS_IT_IS), keys)
            for kind in ("text", "name", "varchar", "bpchar"):
                connection.adapters.register_loader(kind, _AnyText)
        try:
            yield connection
        finally:
            await connection.close()


@contextlib.asynccontextmanager
async def decoding(
    folder: EnginePath, login: Login, database: str, *, major: int, message_bytes_max: int
) -> AsyncIterator[psycopg.AsyncConnection[TupleRow]]:
    """As the superuser, for the changes of a database: as many as come, each of a bounded size.

    Raises MessageTooLargeError, instead of what became of it, where one was larger.
    """
    settings = (*SUPERUSERS, *(SINCE_17 if major >= 17 else ()), *DECODERS)  # noqa: PLR2004 - a version
    async with relay.opened(
        folder / SOCKET, bytes_max=math.inf, message_bytes_max=message_bytes_max
    ) as server:
        connection = await connect(server, login, database, settings, replication="database")
        try:
            yield connection
        except Exception as error:
            if server.exceeded:
                raise MessageTooLargeError from error
            raise
        finally:
            await connection.close()


class _AnyText(Loader):
    """psycopg has bytes where it does not know the encoding."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode(errors="backslashreplace")


async def keys(connection: psycopg.AsyncConnection[TupleRow], login: Login) -> Keys | None:
    """Of the login of this connection, for further ones: to work them out takes milliseconds."""
    if not login.password or psycopg.pq.version() < TAKES_KEYS:
        return None
    row = await (await connection.execute(VERIFIER)).fetchone()
    return None if row is None else scram.keys(login.password, row[0])


@contextlib.asynccontextmanager
async def unhindered(
    connection: psycopg.AsyncConnection[TupleRow], folder: EnginePath, login: Login
) -> AsyncIterator[None]:
    """Ends the sessions that keep a statement of this connection waiting; `login` is its own.

    Else a transaction that is left open, by who should lose his login, would keep it. Some of what
    a session may be doing is not interrupted, for however long it takes: HeldUpError then.
    """
    limit = asyncio.timeout(None)
    try:
        async with limit:
            pid = connection.info.backend_pid
            watch = asyncio.create_task(_end_blockers(folder, login, pid, limit))
            try:
                yield
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
    except psycopg.errors.LockNotAvailable as error:
        raise PostgresHeldUpError("a lock was not released") from error
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise PostgresHeldUpError("a session that holds a lock does not end") from error


async def _end_blockers(folder: EnginePath, login: Login, pid: int, limit: asyncio.Timeout) -> None:
    await asyncio.sleep(PATIENCE_S)
    looks = 0
    async with administration(folder, login) as connection:
        while looks < LOOKS_MAX:
            found = await connection.execute(END_BLOCKERS, [pid, login.username])
            looks += found.rowcount > 0
            await asyncio.sleep(PATIENCE_S)
    limit.reschedule(asyncio.get_running_loop().time())


async def connect(
    server: EnginePath | LimitedRelay,
    login: Login,
    database: str,
    settings: tuple[str, ...] = ANYBODYS,
    keys: Keys | None = None,
    *,
    replication: str = "",
) -> psycopg.AsyncConnection[TupleRow]:
    """Raises NotRunningError, or psycopg's OperationalError where the server says no.

    The server is told by the socket's folder, or a relay, which has looked who answers there.
    """
    if isinstance(server, LimitedRelay):
        try:
            folder = str(server.folder)
            return await _connected(folder, login, database, settings, keys, replication)
        except NotRunningError as error:
            if server.foreign:
                said = f'{SAID}  {WRONG_PASSWORD} for user "{login.username}"'
                raise WrongPasswordError(said) from error
            raise
    path = str(server / SOCKET)
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(sockets.folder_of(path))
        except OSError as error:
            raise NotRunningError from error
        connection = await _connected(held, login, database, settings, keys, replication)
        try:
            sockets.check(connection.fileno(), path)
        except OSError as error:
            await connection.close()
            raise NotRunningError from error
        # A statement that is broken off is told so on a further connection.
        weakref.finalize(connection, stack.pop_all().close)
    return connection


async def _connected(
    folder: str,
    login: Login,
    database: str,
    settings: tuple[str, ...],
    keys: Keys | None,
    replication: str,
) -> psycopg.AsyncConnection[TupleRow]:
    try:
        return await psycopg.AsyncConnection.connect(
            host=folder,
            port=PORT,
            user=login.username,
            password=login.password,
            scram_client_key=None if keys is None else keys.client,
            scram_server_key=None if keys is None else keys.server,
            dbname=database,
            options=" ".join(f"-c {each}" for each in settings),
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_S,
            application_name="menagerie",
            # A server that was taken over must not be told the password itself.
            require_auth="scram-sha-256" if login.password else "none",
            sslmode="disable",
            gssencmode="disable",
            replication=replication,
        )
    except psycopg.OperationalError as error:
        if SAID not in str(error) or NOT_NOW in str(error):
            raise NotRunningError from error
        if WRONG_PASSWORD in str(error):
            raise WrongPasswordError(str(error)) from error
        raise


def is_said(error: BaseException | None) -> bool:
    """Whether a server said so, be it that it takes nobody now, as while it recovers."""
    return SAID in str(error)


def is_gone(error: NotRunningError | psycopg.Error) -> bool:
    """Whether nobody answered, or not to the end: sessions end with one that crashes."""
    if isinstance(error, NotRunningError):
        return True
    if not isinstance(error, psycopg.OperationalError):
        return False
    state = error.sqlstate
    return SAID not in str(error) and (state is None or state.startswith(SHUTDOWN))


@contextlib.asynccontextmanager
async def as_owner(
    folder: EnginePath, login: Login
) -> AsyncIterator[psycopg.AsyncConnection[TupleRow]]:
    """To a database where nothing of the owner's runs; what he can change is not trusted."""
    async with relay.opened(folder / SOCKET, bytes_max=OWNERS_BYTES_MAX) as server:
        connection = await connect(server, login, OURS)
        try:
            yield connection
        finally:
            await connection.close()


async def try_login(folder: EnginePath, login: Login) -> None:
    """Raises LoginError where it does not work; where the server is full it may.

    OperationalError where the server had no room for it: a session can take that on purpose.
    """
    try:
        async with as_owner(folder, login):
            pass
    except psycopg.OperationalError as error:
        if is_full(error):
            return
        if not _says(error, OF_A_LOGIN):
            raise
        said = str(error).rpartition(SAID)[2].strip()
        complaint = f"the login {login.username} does not work, so no other was ended: {said}"
        raise LoginError(complaint) from error


async def lets_clients_in(folder: EnginePath, login: Login) -> bool:
    """Whether one that brings no settings gets in where clients go, as far as that is said here.

    Not where the server has no room, a lock is held, or there is nowhere to go.
    """
    async with relay.opened(folder / SOCKET, bytes_max=OWNERS_BYTES_MAX) as server:
        try:
            async with asyncio.timeout(CLIENTS_WITHIN_S):
                connection = await connect(server, login, CLIENTS, ())
        except TimeoutError:
            return True
        except (NotRunningError, psycopg.OperationalError) as error:
            told = str(error.__cause__ or error)
            return any(each in told for each in NOT_BY_SETTINGS)
        await connection.close()
        return True


def is_full(error: psycopg.Error) -> bool:
    """Whether the server runs and has no connection left."""
    return _says(error, FULL)


def is_exhausted(error: psycopg.Error) -> bool:
    """Whether it lacks what sessions have taken, for those that there are and any other."""
    return _says(error, EXHAUSTED)


def reason(error: NotRunningError | psycopg.Error) -> str:
    """For the owner, without the machine's paths."""
    if is_gone(error):
        return "it does not respond to logins"
    said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return said or str(error).rpartition(SAID)[2].strip()


def _says(error: psycopg.Error, words: tuple[str, ...]) -> bool:
    return any(each in str(error) for each in words)
