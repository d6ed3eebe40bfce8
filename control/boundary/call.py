"""Call: what a handler is given, and all it may do beside reading and changing records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from control import events, work
from control.boundary import secret_members
from control.boundary import streamed_answers as lasting
from control.boundary.audited_changes import AuditedChanges
from control.boundary.authorization import lacking_for, lacking_in_team
from control.boundary.callers import NOT_FOUND, Caller
from control.boundary.cursors import Cursors
from control.boundary.event_listener import EventListener
from control.boundary.passwords import proof_of
from control.boundary.rules import Rule
from control.boundary.shared_looks import SharedLooks
from control.boundary.streamed_answers import At, Followed, LiveStep, PageIterator, Step
from control.boundary.subjects import READING
from control.ordering.requester import Requester
from control.services import Services
from specserver import Conflict, Exchange, NotFound, Reply
from storage import database
from storage.access.organizations import Organization
from storage.access.scopes import NOWHERE, RecordPlace, Scope, Within
from storage.access.users import User
from storage.events import audit
from storage.instances.instances import Instance

if TYPE_CHECKING:
    from control.boundary.streamed_answers import Again


class HandlerFault(Exception):  # noqa: N818 -- a fact about a handler
    """A handler left out what the document says of it; raised in tests and --dev only."""


@dataclass
class Call:
    """One request let in. `db` is its transaction, which the boundary commits, handlers never do.

    `now` is the database's clock. `org` is the org of the path, where there is one. While one
    request changes things in an org no other does: what is counted for a quota stays true.
    """

    db: Session
    caller: Caller | None
    org: Organization | None
    exchange: Exchange
    now: datetime
    services: Services
    rule: Rule
    ip: str
    again: Again
    event_listener: EventListener
    looks: SharedLooks
    operation_key: str = ""
    """Names what a cell is asked to do: the same for every try of one request."""
    _pending: list[Callable[[], None]] | None = field(default=None, init=False)
    _audited: bool = field(default=False, init=False)

    @property
    def request_id(self) -> str:
        return self.exchange.request_id

    def require(self, permission: str, place: RecordPlace) -> None:
        """For what x-authorize cannot say: where something is made, or moved to."""
        if self.caller is None or not self.caller.rights.has(permission, place):
            raise lacking_in_team(permission)

    def require_shown(self, permission: str, place: RecordPlace) -> None:
        """For a record that the path does not name: not there for those who may not see it."""
        if self.caller is None or not self.caller.rights.has(permission, place):
            raise NotFound(NOT_FOUND)

    def require_for(self, permission: str, members: Collection[str]) -> None:
        """For members of the body that need more than the operation: in the organization."""
        if members and (self.caller is None or not self.caller.rights.has(permission)):
            raise lacking_for(permission, members)

    @property
    def scope(self) -> Within:
        """What a list may show: the records for which the caller has the operation's permission."""
        return self.scope_of(self.rule.permission)

    def scope_of(self, permission: str) -> Within:
        """The records for which the caller has this permission."""
        if self.caller is None:
            return NOWHERE
        held = self.caller.rights.where(permission)
        return None if held is None else Scope(*held)

    def is_password_right(self, user: User | None) -> bool:
        """Of the password that x-password names. A right one whose hash is to change changes it."""
        proof = proof_of(self.exchange)
        if user is None or proof is None or not proof.right:
            return False
        # Held until the commit: a change of it sees, and ends, the session that begins here.
        self.db.refresh(user, with_for_update=True)
        if user.password_hash != proof.stored:
            raise Conflict("the password was changed at the same time; try again")
        user.password_hash = proof.new_hash or proof.stored
        return True

    def audit(
        self,
        target: str | None = None,
        *,
        detail: Mapping[str, Any] | None = None,
        changes: AuditedChanges | None = None,
        org: Organization | None = None,
    ) -> None:
        """Write what was done to the audit log, under the operation's x-audit.

        `detail` is for readers of the log; members that the document has secret are refused.
        Of settings, `changes` are told with it.
        """
        if changes is not None:
            detail = {**(detail or {}), "changes": changes.told()}
        if self.rule.audit is None:
            raise HandlerFault(
                f"{self.exchange.operation.id} audits, and its x-audit names nothing"
            )
        self._audited = True
        if self._pending is not None:
            self._pending.append(partial(self.audit, target, detail=detail, org=org))
            return
        within = org or self.org
        caller = self.caller
        told = {**(detail or {}), **(caller.granted_by if caller else {})}
        audit.append(
            self.db,
            within.id if within else None,
            self.rule.audit,
            actor_kind=caller.actor_kind if caller else "anonymous",
            actor_id=caller.id if caller else None,
            target=target,
            request_id=self.request_id,
            ip=self.ip,
            detail=self._without_secrets(told),
        )

    def emit(self, kind: str, data: Mapping[str, Any], instance: Instance | None = None) -> None:
        """Publish an event with this transaction; as with `audit`, no secrets."""
        if self.services.settings.strict and kind not in self.rule.events:
            raise HandlerFault(f"{self.exchange.operation.id} emits {kind}, not among its x-events")
        self._refuse_outside()
        if self.org is None:
            raise HandlerFault(f"{self.exchange.operation.id} emits {kind} outside of any org")
        events.publish(self.db, self.org.id, kind, self._without_secrets(data), instance)

    def start(
        self,
        started: work.Workflow,
        instance: Instance | None = None,
        *,
        lane: str | None = None,
        **args: Any,
    ) -> None:
        """Start a workflow with this transaction, in the lane of the instance or the one named.

        Beside `args` it gets the request's id, and the ids of the instance and its org.
        """
        self._refuse_outside()
        if instance is not None:
            args = {"org_id": instance.org_id, "instance_id": instance.id, **args}
        lane = lane or (started.lane_of(instance.id) if instance is not None else None)
        if lane is None:
            raise ValueError(f"{started.kind} is started in no lane: name one, or an instance")
        args = {"request_id": self.request_id, **args}
        work.enqueue(self.db, started, lane, args)

    @property
    def requester(self) -> Requester:
        """Who orders an instance by this request."""
        if self.org is None or self.caller is None:
            raise HandlerFault(f"{self.exchange.operation.id} orders outside of any org")
        settings = self.services.settings
        who = self.db, self.org, self.caller.id
        return Requester(*who, settings.overcommit, self.now, settings.prices)

    def streamed(self, step: Step[At], begin: At, media_type: str, filename: str) -> Reply:
        """A long answer, a page at a time: each `step` has a transaction and a call of its own."""
        self._refuse_to_last()
        reply = Reply.stream(PageIterator(self.again, step, begin), media_type)
        reply.headers["Content-Disposition"] = f'attachment; filename="{filename}"'
        return reply

    def live(self, step: LiveStep[At], begin: At, first: str, *, shared_as: Hashable) -> Reply:
        """Events as they come, after `begin`: `step` is asked whenever the org has new ones.

        `first` is sent at once. The answer ends when the caller's right does. Of one credential,
        those of equal `shared_as` are sent the same.
        """
        self._refuse_to_last()
        org, caller = self.org, self.caller
        if org is None or caller is None:
            raise HandlerFault(f"{self.exchange.operation.id} follows events outside of any org")
        place = self.exchange.operation.id, tuple(self.exchange.path.items())
        followed = Followed(
            again=self.again,
            step=step,
            begin=begin,
            wakers=(org.id, caller.user.id),
            shared_as=(caller.credential_id, place, shared_as),
            first=first,
            for_s=self.services.settings.stream_ttl_s,
        )
        return Reply.live(lasting.follow(self.exchange, followed, self.event_listener, self.looks))

    def release_connection(self) -> None:
        """Give the database's connection back, before somebody is asked who may take long."""
        database.release(self.db)

    def wait_to_record(self) -> None:
        """The boundary's: what is audited from now on waits for `record`."""
        self._pending = []

    def record(self, db: Session) -> None:
        """The boundary's: write down, in this transaction, what was done outside of it."""
        pending, self._pending, self.db = self._pending or [], None, db
        for act in pending:
            act()

    def cursor_in(self, cursor: str | None) -> dict[str, Any] | None:
        """The position a cursor stands for; Invalid unless it came from this list."""
        return None if cursor is None else self._cursors.read(cursor, self._place)

    def cursor_out(self, position: dict[str, Any]) -> str:
        return self._cursors.write(position, self._place)

    def finish(self) -> None:
        """The boundary's: see that what was done is in the audit log."""
        dry_run = self.exchange.arguments.get("dry_run") is True
        if self.rule.audit is None or self._audited or dry_run:
            return
        if self.services.settings.strict:
            raise HandlerFault(
                f"{self.exchange.operation.id} did not audit {self.rule.audit}: call call.audit()"
            )
        ids = [value for name, value in self.exchange.path.items() if name != "org_id"]
        self.audit(ids[-1] if ids else None)

    def checked(self, reply: Reply) -> Reply:
        """The boundary's: the handler's reply. HandlerFault for changes that would be lost."""
        if self.services.settings.strict:
            for lost in database.unwritten(self.db):
                what = f"reads, and changed a {type(lost).__name__}"
                raise HandlerFault(f"{self.exchange.operation.id} {what}")
        return reply

    def _without_secrets(self, told: Mapping[str, Any]) -> dict[str, Any]:
        if not self.rule.secret:
            return dict(told)
        secret = secret_members.found(self.rule.secret, told)
        if secret and self.services.settings.strict:
            names = ", ".join(sorted(secret))
            raise HandlerFault(f"{self.exchange.operation.id} tells {names}, which is secret")
        kept: dict[str, Any] = secret_members.without(self.rule.secret, told)
        return kept

    def _refuse_to_last(self) -> None:
        """What changes something is answered whole: its answer is kept for a repetition."""
        if self.exchange.operation.method.upper() not in READING:
            raise HandlerFault(f"{self.exchange.operation.id} changes something, and would last")

    def _refuse_outside(self) -> None:
        if self._pending is not None:
            raise HandlerFault(
                f"{self.exchange.operation.id} is only audited by this transaction (x-done-by)"
            )

    @property
    def _cursors(self) -> Cursors:
        return Cursors(self.services.settings.cursor_key)

    @property
    def _place(self) -> str:
        owner = self.org.id if self.org else self.caller.user.id if self.caller else ""
        return f"{self.exchange.operation.id}\0{owner}"


def refuse_closed(org: Organization) -> None:
    if org.status == "closed":
        raise Conflict("the organization is closed and read-only", code="org_closed")
