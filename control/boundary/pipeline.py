"""The pipeline of a request: its stages in their order, in one transaction.

authenticate -> tenant -> authorize -> rate limit -> validate -> replay -> records of the path ->
handler -> audit, events, replay -> commit. What writes is let in twice: once by reading, so that
whoever is refused, limited or wrong never holds the lock of writers; and again in the transaction
that writes, so that a right taken away while waiting is gone. Changes in one org exclude each
other.
"""

import threading
import uuid
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final

from sqlalchemy.orm import Session

from control.boundary import (
    accounts,
    allow_list,
    answering,
    callers,
    charges,
    failures,
    passwords,
    subjects,
)
from control.boundary.addresses import Proxies, levels, rate_key
from control.boundary.admission_cache import AdmissionCache
from control.boundary.asking import ask
from control.boundary.authorization import authorize
from control.boundary.call import Call, HandlerFault, refuse_closed
from control.boundary.callers import Admission, Caller
from control.boundary.charges import Charge
from control.boundary.event_listener import EventListener
from control.boundary.last_used import LastUsed
from control.boundary.probing import ProbingWatch
from control.boundary.rates import VERDICT
from control.boundary.refusal_log import RefusalLog
from control.boundary.replay import ReplayKey, Replays
from control.boundary.rules import Rule, rule_of
from control.boundary.shared_looks import SharedLooks
from control.boundary.unrouted import UnroutedLimit
from control.services import Services
from specserver import Exchange, NotFound, Operation, Problem, Reply, TooManyRequests
from specserver.shares import Stranger
from storage import tenancy
from storage.access import organizations

# Tokens of known callers; what is forgotten is learned again by the next request.
_KNOWN_MAX = 10_000


def make_boundary(services: Services) -> "RequestPipeline":
    """The boundary of the control plane, for `specserver.App(boundary=…)`."""
    return RequestPipeline(services)


@dataclass(frozen=True)
class RequestContext:
    """A request and what is known of it before any query."""

    exchange: Exchange
    rule: Rule
    ip: str
    token: str | None

    @property
    def org_id(self) -> str | None:
        return self.exchange.path["org_id"] if self.rule.in_org else None


class _Failed(Exception):  # noqa: N818 -- carries an answer through the rollback
    """A handler answered a failure, which leaves nothing behind, as if it had been raised."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply


class RequestPipeline:
    """A boundary: called with an exchange, answers or raises a Problem."""

    leading: Final = 1
    """Arguments that come first in a handler's signature: the call."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._proxies = Proxies(services.settings.trusted_proxies)
        self.charge_unrouted = UnroutedLimit(self._proxies, services.settings).charge
        self._replays = Replays(services.sealer, services.settings)
        self._rules: dict[str, Rule] = {}
        # The organization or user of each token, the one used last at the end.
        self._known: dict[int, str] = {}
        self._knowing = threading.Lock()
        self._admission_cache = AdmissionCache()
        self._probing = ProbingWatch(services)
        self.last_used = LastUsed(services.database)
        self.refusals = RefusalLog(services)
        self._event_listener = EventListener(services.database)
        self._looks = SharedLooks()

    def __call__(self, exchange: Exchange) -> Reply:
        return answering.answer(exchange, self._serve)

    def whose(self, exchange: Exchange) -> Hashable:
        """Whose share of the API a request takes: of the organization or the user of its token.

        Where the token has not been let in before, and without one, it is a stranger's, by
        address within its network: nobody gets a share by making up a token, by naming an
        organization, or by having a network full of addresses.
        """
        caller = self._known.get(_known_as(exchange))
        return Stranger(*levels(self._ip(exchange))) if caller is None else caller

    def is_heavy(self, exchange: Exchange) -> bool:
        """Whether a request takes much of a CPU: those that hash a password do."""
        return self._rule(exchange.operation).password is not None

    def arguments_of(self, operation: Operation, names: frozenset[str]) -> set[str]:
        """What a handler can name: the records of the path in place of their ids."""
        named = self._rule(operation).subjects
        return {*names - {one.parameter for one in named}, *(one.name for one in named)}

    def _learn(self, exchange: Exchange, caller: Caller | None) -> None:
        token = _known_as(exchange)
        with self._knowing:
            known = self._known.pop(token, None)
            if caller is None:
                return
            if known is None and len(self._known) >= _KNOWN_MAX:
                del self._known[next(iter(self._known))]
            self._known[token] = caller.key.org_id if caller.key else caller.user.id

    def _ip(self, exchange: Exchange) -> str:
        request = exchange.request
        forwarded_for = request.headers.get("x-forwarded-for")
        return self._proxies.client_address(request.client, forwarded_for)

    def _serve(self, exchange: Exchange) -> Reply:
        rule = self._rule(exchange.operation)
        ip = self._ip(exchange)
        try:
            context = RequestContext(exchange, rule, ip, _token(exchange, rule))
            if rule.outside:
                return self._write_outside(context)
            if rule.writes:
                return self._write(context)
            return self._read(context)
        except Problem as problem:
            self._probing.note(exchange, problem)
            self.refusals.note(exchange, rule, problem, ip)
            # Whoever is turned away before the limit is asked has made a request all the same.
            if VERDICT not in exchange.state:
                # It has guessed and got nothing, so it takes nothing of what a person may guess.
                self._charge(exchange, charges.of_refused(exchange.principal, ip))
            raise

    def _read(self, context: RequestContext) -> Reply:
        with self._services.database.read() as db:
            admission = self._admit(db, context, self._admission_cache)
            self._prepare(context, admission)
            reply = _invoke(self._call(db, context, admission))
            self._check_unchanged(context, admission)
            return reply

    def _check_unchanged(self, context: RequestContext, admission: Admission) -> None:
        """The records of a caller who is known are those of other requests too."""
        if self._services.settings.strict and admission.resolved is not None:
            for changed in admission.resolved.changed():
                raise HandlerFault(
                    f"{context.exchange.operation.id} reads, and changed a {changed}"
                )

    def _write(self, context: RequestContext) -> Reply:
        with self._services.database.read() as db:
            admission = self._admit(db, context, self._admission_cache)
        self._prepare(context, admission)
        key = self._replay_key(context, admission)
        member, services = context.rule.password, self._services
        ask(context.exchange, context.rule, admission, services)
        if member and not passwords.prove(context.exchange, member, admission.caller, services):
            return self._refuse(context, key)
        try:
            return self._write_once(context, key)
        except _Failed as failed:
            return failed.reply

    def _refuse(self, context: RequestContext, key: ReplayKey | None) -> Reply:
        """What the handler says to a wrong password, which holds no writer up.

        It was right where its change was answered before; a sign-in must prove it each time.
        """
        with self._services.database.read() as db:
            admission = self._admit(db, context)
            if key is not None and not key.brief:
                before = self._replays.seen(db, key, admission.at)
                if before is not None:
                    return before
            reply = _invoke(self._call(db, context, admission))
        if not _is_failure(reply):
            raise HandlerFault(f"{context.exchange.operation.id} took a wrong password")
        return reply

    def _write_outside(self, context: RequestContext) -> Reply:
        """A cell may take long, as may reading; no writer waits for it. It is recorded then.

        Where that fails, the same request again asks the cell again, which repeats nothing.
        """
        with self._services.database.read() as db:
            admission = self._admit(db, context, self._admission_cache)
            self._prepare(context, admission)
            if context.rule.mutating and admission.org is not None:
                refuse_closed(admission.org)
            key = self._replay_key(context, admission)
            before = None if key is None else self._replays.seen(db, key, admission.at)
            call = self._call(db, context, admission)
            if before is not None:
                allow_list.check_again(call)
                return before
            call.operation_key = uuid.uuid4().hex if key is None else key.act
            call.wait_to_record()
            reply = _invoke(call)
        return reply if _is_failure(reply) else self._record(call, reply, key)

    def _record(self, call: Call, reply: Reply, key: ReplayKey | None) -> Reply:
        with self._services.database.write() as db:
            # Two that share a key were asked at once and are done: neither goes unrecorded.
            if key is not None:
                key, before = self._replays.recorded(db, key, call.now)
                if before is not None:
                    return before
            tenancy.restrict(db, call.org.id if call.org else None)
            call.record(db)
            call.finish()
            if key is not None:
                self._replays.keep(db, key, call.now, reply)
        return reply

    def _write_once(self, context: RequestContext, key: ReplayKey | None) -> Reply:
        with self._services.database.write() as db:
            # Before all else is read: rights, status and quotas stay as found until the commit.
            self._lock(db, key, context.org_id if context.rule.mutating else None)
            admission = self._admit(db, context)
            if key is not None:
                before = self._replays.answer(db, key, admission.at)
                if before is not None:
                    return self._still(before, db, context, admission)
            return self._act(db, context, admission, key)

    def _lock(self, db: Session, key: ReplayKey | None, org_id: str | None) -> None:
        if key is not None:
            self._replays.lock(db, key, org_id)
        elif org_id is not None:
            organizations.lock(db, org_id)

    def _still(
        self, before: Reply, db: Session, context: RequestContext, admission: Admission
    ) -> Reply:
        """A stored response, for whoever may still do what it was given for.

        Those with the permission in some teams only must have it for the record as it is now.
        """
        caller = admission.caller
        if caller is not None and not caller.rights.has(context.rule.permission):
            subjects.resolve(self._call(db, context, admission), lock=False)
        return before

    def _act(
        self, db: Session, context: RequestContext, admission: Admission, key: ReplayKey | None
    ) -> Reply:
        if context.rule.mutating and admission.org is not None:
            refuse_closed(admission.org)
        call = self._call(db, context, admission)
        reply = _invoke(call)
        if _is_failure(reply):
            raise _Failed(reply)
        call.finish()
        if key is not None:
            self._replays.keep(db, key, admission.at, reply)
        return reply

    def _admit(
        self, db: Session, context: RequestContext, cache: AdmissionCache | None = None
    ) -> Admission:
        database, mfa_ttl_s = self._services.database, self._services.settings.mfa_ttl_s
        if context.token is None:
            return Admission(None, None, database.now(db))
        try:
            admission = callers.admit(
                db,
                database,
                context.token,
                org_id=context.org_id,
                mfa_ttl_s=mfa_ttl_s,
                cache=cache,
            )
        except Problem:
            self._learn(context.exchange, None)
            raise
        context.exchange.principal = admission.caller
        self._learn(context.exchange, admission.caller)
        if context.rule.in_org and admission.org is None:
            raise NotFound(callers.NOT_FOUND)
        if admission.caller is not None:
            authorize(context.rule, admission.caller, admission.org, admission.at)
        return admission

    def _prepare(self, context: RequestContext, admission: Admission) -> None:
        """Rate limit, then validate. A long poll is one request, however often it looks."""
        exchange = context.exchange
        if admission.caller is not None:
            self.last_used.note(admission.caller, admission.at)
        if exchange.attempt == 0:
            self._charge(exchange, charges.of(context.rule, admission.caller, context.ip))
        exchange.validate()
        if context.rule.rate == "authentication" and exchange.attempt == 0:
            accounts.charge(exchange, context.rule, admission.caller, context.ip, self._services)

    def _charge(self, exchange: Exchange, due: Iterable[Charge]) -> None:
        verdict = self._services.limiter.charge_all(due)
        exchange.state.setdefault(VERDICT, verdict)
        if verdict is not None and not verdict.allowed:
            exchange.state[VERDICT] = verdict
            detail = f"too many requests; try again in {verdict.retry_after_s} s"
            raise TooManyRequests(detail, code="rate_limited")

    def _replay_key(self, context: RequestContext, admission: Admission) -> ReplayKey | None:
        caller, org, rule = admission.caller, admission.org, context.rule
        if caller is None:
            whose = (f"address:{rate_key(context.ip)}", "", "")
        else:
            holder = caller.session.id if caller.session and rule.sensitive else ""
            whose = (org.id if org else caller.user.id, caller.id, holder)
        return self._replays.key_of(context.exchange, *whose, brief=rule.brief)

    def _call(self, db: Session, context: RequestContext, admission: Admission) -> Call:
        tenancy.restrict(db, admission.org.id if admission.org else None)
        return Call(
            db=db,
            caller=admission.caller,
            org=admission.org,
            exchange=context.exchange,
            now=admission.at,
            services=self._services,
            rule=context.rule,
            ip=context.ip,
            again=partial(self._again, context),
            event_listener=self._event_listener,
            looks=self._looks,
        )

    @contextmanager
    def _again(self, context: RequestContext) -> Iterator[Call]:
        """The same request at a later moment: whoever has lost the right to it gets a Problem."""
        try:
            with self._services.database.read() as db:
                call = self._call(db, context, self._admit(db, context, self._admission_cache))
                subjects.resolve(call, lock=False)
                yield call
        except failures.EXPECTED as error:
            raise failures.as_problem(error) from error

    def _rule(self, operation: Operation) -> Rule:
        known = self._rules.get(operation.id)
        return known or self._rules.setdefault(operation.id, rule_of(operation))


def _invoke(call: Call) -> Reply:
    """The records of the path first, so that no handler runs for one that is not there."""
    return call.checked(call.exchange.invoke(call, **subjects.resolve(call)))


def _is_failure(reply: Reply) -> bool:
    return reply.status >= HTTPStatus.BAD_REQUEST


def _token(exchange: Exchange, rule: Rule) -> str | None:
    """The credentials to be checked; None where none are needed. Needs no query."""
    if not rule.accepts:
        return None
    token = callers.bearer_token(exchange.request.headers.get("authorization"))
    if token is None and not rule.optional:
        raise callers.missing()
    return token


def _known_as(exchange: Exchange) -> int:
    """A hash that nobody outside can aim at, so that no token is kept."""
    return hash(exchange.request.headers.get("authorization", "").partition(" ")[2].strip())
