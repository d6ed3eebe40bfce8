"""What is sent to one-time URLs: by whom it may be, and how much of it at a time."""

import contextlib
import time

from cell.access.tokens import Claims, Tokens
from cell.instances.hosted import HostedInstance
from cell.instances.lifecycle import Lifecycle
from cell.instances.pools import owner_of
from cell.migrations.commands import Migrations
from cell.migrations.record import Migration
from specserver import Problem, Unavailable
from specserver.turns import Together

ACTION = "migration_source"
# A request arrives within 30 s, or not at all.
ARRIVES_WITHIN_S = 31.0
# Of 8 MiB each, in the memory of the cell.
PARTS_MAX = 8
# Of one tenant, and of its first owner.
PARTS_OF_ONE = 2
RETRY_AFTER = {"Retry-After": "1"}


class SentSources:
    """A URL is used up when all of the source has arrived; until then it takes part after part."""

    def __init__(self, tokens: Tokens, lifecycle: Lifecycle, migrations: Migrations) -> None:
        self._tokens = tokens
        self._lifecycle = lifecycle
        self._migrations = migrations
        self._arriving: dict[str, tuple[Together, float]] = {}

    def admit(self, token: str) -> None:
        """By the head of a request, before its body takes memory."""
        claims, instance = self._claims(token)
        self._migrations.await_source(instance, claims.migration_id)
        now, owners = time.monotonic(), owner_of(instance.record)
        self._arriving = {name: each for name, each in self._arriving.items() if each[1] > now}
        if claims.migration_id in self._arriving:
            raise Unavailable("another part of the source is arriving", headers=RETRY_AFTER)
        held = [whose for whose, _ in self._arriving.values()]
        own = max(sum(owner in whose for whose in held) for owner in owners)
        if len(held) >= PARTS_MAX or own >= PARTS_OF_ONE:
            raise Unavailable("too many sources are arriving in this cell", headers=RETRY_AFTER)
        self._arriving[claims.migration_id] = (owners, now + ARRIVES_WITHIN_S)

    def arrived(self, token: str) -> None:
        """Whatever came of it; one that never arrives in full is forgotten after a while."""
        with contextlib.suppress(Problem):
            # The URL may have ended meanwhile.
            self._arriving.pop(self._tokens.check(token, ACTION).migration_id, None)

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
