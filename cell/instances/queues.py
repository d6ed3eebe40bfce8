"""Leads the service of queues to the databases of instances: which run, and as whom it comes."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import psycopg

from cell.engines.driver import Login
from cell.engines.postgres import connections, logins, roles, storage
from cell.engines.postgres.configuration import SOCKET
from cell.engines.postgres.connections import (
    NotRunningError,
    PostgresHeldUpError,
    WrongPasswordError,
)
from cell.instances import login_checks
from cell.instances.hosted import HostedInstance
from cell.instances.lifecycle import Lifecycle
from cell.runtime import relay
from cell.runtime.host import Host
from cell.runtime.relay import LimitedRelay
from instance_services.queues.installation import Connection
from instance_services.queues.service import RETRY_AFTER, meaning
from instance_services.queues.store import READ_BYTES_MAX
from specserver import Conflict, Unavailable

ENGINE = "postgres"
AT_ONCE = 4
"""Connections of an instance that queues may take, which are its owner's otherwise."""
TURN_WITHIN_S = 2.0
# The owner's code can lift a limit that is a setting, and answer what it likes: these it cannot.
WITHIN_S = 7.0
BYTES_MAX = READ_BYTES_MAX + 2**20
# The owner, whichever of its logins it is; nothing lasts longer than the caller waits, and what
# the owner set as a default for its own sessions does not bend ours.
SETTINGS = (
    *connections.ANYBODYS,
    *(f"role={roles.OWNER}", "statement_timeout=6s", "lock_timeout=5s"),
    *(r"default_transaction_isolation=read\ committed", "timezone=UTC", "datestyle=iso"),
    *("client_encoding=utf8", "client_connection_check_interval=1s"),
)

FULL = (
    "the storage of the instance is full, so nothing can be added to its queues or archives: "
    "purge or delete queues, remove other data with SQL, or choose more storage or a larger size "
    "(resize)"
)


class _RolesHeldUp(Unavailable):
    """Roles are made on another connection than the owner's, whose end is not the reason."""


class QueueDatabases:
    """The cell acts as the owner: nobody's code in the database gets more rights by queues."""

    def __init__(self, lifecycle: Lifecycle, host: Host) -> None:
        self._lifecycle = lifecycle
        self._host = host
        # Of the instances for which anybody has a turn or waits for one, and how many do.
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._asking: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def owner(self, instance_id: str) -> AsyncIterator[Connection]:
        """Conflict where the instance has no queues or does not run."""
        instance = self._running(instance_id)
        # Who uses queues does not come through the gateway, and the instance is not idle.
        instance.touch()
        bounded = relay.opened(instance.site.run / SOCKET, bytes_max=BYTES_MAX, within_s=WITHIN_S)
        async with self._turn(instance_id), bounded as limited:
            connection = await self._connect(instance, limited)
            try:
                yield connection
            except _RolesHeldUp:
                raise
            except Unavailable as error:
                raise _broken_off(limited) or error from error.__cause__
            finally:
                await connection.close()

    async def make_roles(self, instance_id: str, names: tuple[str, ...]) -> None:
        """As the superuser, in a database where no code of the owner's can be: `postgres`."""
        site = self._running(instance_id).site
        superuser = Login(roles.SUPERUSER, self._host.secret(site, "postgres"))
        try:
            async with (
                connections.administration(site.run, superuser) as connection,
                connections.unhindered(connection, site.run, superuser),
            ):
                await roles.make_groups(connection, names)
        except NotRunningError as error:
            raise _not_now() from error
        except PostgresHeldUpError as error:
            detail = f"the roles of the data API cannot be made now: {error}; try again"
            raise _RolesHeldUp(detail, headers=RETRY_AFTER) from error
        except psycopg.Error as error:
            raise meaning(error) from error

    def require_room(self, instance_id: str) -> None:
        """Our sessions can write past the storage limit, for the sake of what makes room."""
        if storage.is_held(self._running(instance_id).site):
            raise Conflict(FULL, code="storage_full")

    @contextlib.asynccontextmanager
    async def _turn(self, instance_id: str) -> AsyncIterator[None]:
        """Nobody waits so long that the caller has gone when the turn comes."""
        turns = self._turns.setdefault(instance_id, asyncio.Semaphore(AT_ONCE))
        self._asking[instance_id] += 1
        try:
            await _wait_for(turns)
            try:
                yield
            finally:
                turns.release()
        finally:
            self._asking[instance_id] -= 1
            if not self._asking[instance_id]:
                del self._asking[instance_id], self._turns[instance_id]

    def _running(self, instance_id: str) -> HostedInstance:
        instance = self._lifecycle.find(instance_id)
        engine = instance.record.spec.engine
        if engine != ENGINE:
            raise Conflict(f"queues need a postgres instance; this instance is {engine}")
        if instance.status != "running":
            raise Conflict(f"queues need a running instance; this instance is {instance.status}")
        return instance

    async def _connect(self, instance: HostedInstance, limited: LimitedRelay) -> Connection:
        login = logins.of_cell(self._host, instance.site)
        try:
            return await connections.connect(limited, login, roles.DATABASE, SETTINGS)
        except NotRunningError as error:
            raise _not_now() from error
        except WrongPasswordError as error:
            await login_checks.check(instance)
            raise _not_now() from error
        except psycopg.OperationalError as error:
            if connections.is_full(error):
                detail = "all connections of the instance are in use"
                raise Unavailable(detail, headers=RETRY_AFTER) from error
            said = str(error).partition("FATAL:")[2].strip()
            raise Conflict(f"the instance refused the login: {said}") from error


async def _wait_for(turns: asyncio.Semaphore) -> None:
    try:
        await asyncio.wait_for(turns.acquire(), TURN_WITHIN_S)
    except TimeoutError as error:
        detail = "too many requests for queues of this instance at once; try again"
        raise Unavailable(detail, headers=RETRY_AFTER) from error


def _broken_off(limited: LimitedRelay) -> Exception | None:
    """What it is to the caller that the relay ended the connection."""
    if limited.exceeded:
        return Conflict(
            f"the instance's answer has more than {BYTES_MAX} bytes: something in its schemas "
            "pgmq and menagerie_queues is not as it was installed",
            code="refused_by_instance",
        )
    if limited.late:
        return Unavailable("the instance took too long to respond", headers=RETRY_AFTER)
    return None


def _not_now() -> Unavailable:
    return Unavailable("the instance is not responding; try again", headers=RETRY_AFTER)
