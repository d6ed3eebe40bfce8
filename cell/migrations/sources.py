"""What is sent to one-time URLs: by whom it may be, and how much of it at a time."""

from collections.abc import Callable, Hashable
from functools import partial

from cell.access.tokens import Claims, Tokens
from cell.instances.hosted import HostedInstance
from cell.instances.lifecycle import Lifecycle
from cell.instances.pools import owner_of
from cell.migrations.commands import Migrations
from cell.migrations.record import Migration
from gateway.addresses import customer
from specserver import Unavailable
from specserver.turns import Turns

ACTION = "migration_source"
# Of 8 MiB each, in the memory of the cell.
PARTS_MAX = 16
# Of one tenant, and of its first owner.
PARTS_OF_ONE = 2
PARTS_OF_ADDRESS = 6
RESERVED = 5
RETRY_AFTER = {"Retry-After": "1"}


class SentSources:
    """A URL is used up when all of the source has arrived; until then it takes part after part."""

    def __init__(self, tokens: Tokens, lifecycle: Lifecycle, migrations: Migrations) -> None:
        self._tokens = tokens
        self._lifecycle = lifecycle
        self._migrations = migrations
        self._of_migrations = Turns(PARTS_MAX, 1)
        self._of_tenants = Turns(PARTS_MAX, PARTS_OF_ONE, reserved=RESERVED)
        self._of_addresses = Turns(PARTS_MAX, PARTS_OF_ADDRESS, reserved=RESERVED)

    def admit(self, token: str, address: str) -> Callable[[], None]:
        """By the head of a request, before its body takes memory; what is answered ends its place.

        Raises Unavailable where there is none, and the problem of a token that does not hold.
        """
        claims, instance = self._claims(token)
        self._migrations.await_source(instance, claims.migration_id)
        places: list[tuple[Turns, Hashable, str]] = [
            (self._of_migrations, claims.migration_id, "another part of the source is arriving"),
            (self._of_tenants, owner_of(instance.record), "too many sources are arriving"),
            (self._of_addresses, customer(address), "too many sources arrive from this address"),
        ]
        taken: list[Callable[[], None]] = []
        for turns, whose, why in places:
            if not turns.try_enter(whose):
                _leave(taken)
                raise Unavailable(f"{why}; try again in a second", headers=RETRY_AFTER)
            taken.append(partial(turns.leave, whose))
        return partial(_leave, taken)

    def received(self, token: str) -> dict[str, object]:
        claims, instance = self._claims(token)
        return self._migrations.received(instance, claims.migration_id)

    async def take(
        self, token: str, body: bytes | dict[str, object], content_range: str | None
    ) -> dict[str, object]:
        claims, instance = self._claims(token)
        migration_id = claims.migration_id
        if isinstance(body, bytes):
            given = (migration_id, body, content_range)
            found = await self._migrations.take_part(instance, *given)
        else:
            found = await self._migrations.take_connection(instance, migration_id, body)
        self._use_up(claims, found)
        return self._migrations.received(instance, migration_id)

    def _use_up(self, claims: Claims, found: Migration) -> None:
        if found.received_at is not None:
            self._tokens.end(claims.jti, claims.expires_at)

    def _claims(self, token: str) -> tuple[Claims, HostedInstance]:
        claims = self._tokens.check(token, ACTION)
        self._tokens.refuse_used(claims)
        return claims, self._lifecycle.find(claims.instance_id)


def _leave(taken: list[Callable[[], None]]) -> None:
    for leave in taken:
        leave()
