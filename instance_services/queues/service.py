"""Owns the ASGI app of the queues, and what the errors of a database mean to who asked."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Protocol

import psycopg

from instance_services.queues import installation
from instance_services.queues.installation import Connection
from instance_services.queues.store import Act, Answer
from specserver import App, Boundary, Conflict, Invalid, Unavailable

DOCUMENT: Final = Path(__file__).with_name("openapi.yaml")
BODY_BYTES_MAX: Final = 8 * 2**20
"""More than the control plane takes: a number may be longer in its JSON than in its caller's."""
RETRY_AFTER: Final = {"Retry-After": "1"}
REFUSED: Final = "refused_by_instance"
SAID_CHARACTERS_MAX: Final = 1000
_RESOURCES: Final = "53"
_GOING: Final = "57"


class Databases(Protocol):
    """Where the connections come from: the cell, which knows every instance's."""

    def owner(self, instance_id: str) -> AbstractAsyncContextManager[Connection]:
        """As the owner of the database, each statement by itself; Conflict where it cannot be."""

    def require_room(self, instance_id: str) -> None:
        """Raises Conflict at the storage limit."""

    async def make_roles(self, instance_id: str, names: tuple[str, ...]) -> None:
        """Makes those of the roles that are not there, for the owner to give to others."""


class Service:
    """The state of the app: a database with queues in it, for each request."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    def adding(self, instance_id: str, act: Act) -> Act:
        """`act` where there is room: asked when it begins, so that what was done is answered."""

        async def within_storage() -> Answer:
            self._databases.require_room(instance_id)
            return await act()

        return within_storage

    @contextlib.asynccontextmanager
    async def database(self, instance_id: str) -> AsyncIterator[Connection]:
        async def make_roles() -> None:
            await self._databases.make_roles(instance_id, installation.ROLES)

        async with self._databases.owner(instance_id) as connection:
            try:
                await installation.ensure(connection, make_roles)
                yield connection
            except psycopg.Error as error:
                raise meaning(error) from error


def make_app(databases: Databases, boundary: Boundary, problem_types: str) -> App:
    """The `boundary` calls the handlers with the app's state, which is a Service."""
    return App(
        DOCUMENT,
        handlers="instance_services.queues.handlers",
        boundary=boundary,
        state=Service(databases),
        problem_type_prefix=problem_types,
        max_body_bytes=BODY_BYTES_MAX,
        serve_docs=False,
        checked=True,
    )


def meaning(error: psycopg.Error) -> Exception:
    """What it is to the caller that the database did not do it."""
    state = error.sqlstate or ""
    said = (error.diag.message_primary or "the connection was lost")[:SAID_CHARACTERS_MAX]
    if isinstance(error, psycopg.DataError) and state:
        return Invalid(f"the instance cannot store this: {said}")
    if isinstance(error, psycopg.errors.QueryCanceled):
        return Unavailable("the instance took too long to respond", headers=RETRY_AFTER)
    if isinstance(error, psycopg.DataError):
        # The client's own word on what it was answered.
        return Conflict(f"the instance's answer cannot be read: {error}", code=REFUSED)
    if not state or state.startswith((_RESOURCES, _GOING)):
        return Unavailable(f"the instance cannot do this now: {said}", headers=RETRY_AFTER)
    if isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
        return Unavailable(f"the queue is locked by another session: {said}", headers=RETRY_AFTER)
    return Conflict(f"the instance refused this: {said}", code=REFUSED)
