"""ScimCall: what serves a SCIM request is given, and how what it did is written down."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from control import events
from control.services import Services
from specserver import Exchange
from storage.access.organizations import Organization
from storage.database import only_reads
from storage.events import audit
from storage.sso.scim_tokens import ScimToken


@dataclass(frozen=True)
class ScimCall:
    """One request let in. `db` is its transaction, held to the organization of the token.

    `now` is the database's clock.
    """

    db: Session
    org: Organization
    token: ScimToken
    exchange: Exchange
    now: datetime
    services: Services
    ip: str

    @contextmanager
    def held(self) -> Iterator[None]:
        """What fails within it leaves nothing behind; who only reads has nothing to leave."""
        with nullcontext() if only_reads(self.db) else self.db.begin_nested():
            yield

    def audit(self, action: str, target: str, detail: Mapping[str, Any]) -> None:
        """In the log of the organization, as done by the token."""
        audit.append(
            self.db,
            self.org.id,
            action,
            actor_kind="scim_token",
            actor_id=self.token.id,
            target=target,
            request_id=self.exchange.request_id,
            ip=self.ip,
            detail=dict(detail),
        )

    def emit(self, kind: str, data: Mapping[str, Any]) -> None:
        events.publish(self.db, self.org.id, kind, data)
