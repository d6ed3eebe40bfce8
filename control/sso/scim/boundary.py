"""The boundary of the SCIM server: whose token it is, what it may reach, and in which transaction.

A token is good in one organization, and the session of a request is held to that one. Changes in
an organization exclude each other, those of the rest of the API included, so that two pushes of one
group are one after the other.
"""

from collections.abc import Hashable
from typing import Final

from sqlalchemy.orm import Session

from control.boundary import answering, charges
from control.boundary.addresses import Proxies, levels
from control.boundary.call import refuse_closed
from control.boundary.charges import Charge
from control.boundary.identity import is_scim_token, token_sha256
from control.boundary.last_used import LastUsed
from control.boundary.rates import VERDICT
from control.boundary.unrouted import UnroutedLimit
from control.services import Services
from control.sso.scim.call import ScimCall
from specserver import Exchange, Reply, TooManyRequests, Unauthenticated
from specserver.shares import Stranger
from storage import tenancy
from storage.access import organizations
from storage.sso import scim_tokens
from storage.sso.scim_tokens import ScimToken

REALM: Final = 'Bearer realm="SCIM"'
READS: Final = "reads"
"""What `x-scim` says of an operation that changes nothing."""
_KNOWN_MAX: Final = 10_000


class _Failed(Exception):  # noqa: N818 -- carries an answer through the rollback
    def __init__(self, reply: Reply) -> None:
        self.reply = reply


class ScimBoundary:
    """Called with an exchange, answers or raises a Problem."""

    leading: Final = 1
    """Arguments that come first in a handler's signature: the call."""

    def __init__(self, services: Services, last_used: LastUsed) -> None:
        self._services = services
        self._proxies = Proxies(services.settings.trusted_proxies)
        self._last_used = last_used
        self.charge_unrouted = UnroutedLimit(self._proxies, services.settings).charge
        # The organizations of tokens that were let in, by their hashes.
        self._known: dict[str, str] = {}

    def whose(self, exchange: Exchange) -> Hashable:
        """Whose share of the threads a request takes: nobody gets one by making up a token."""
        org_id = self._known.get(token_sha256(_token(exchange) or ""))
        return Stranger(*levels(self._ip(exchange))) if org_id is None else org_id

    def __call__(self, exchange: Exchange) -> Reply:
        return answering.answer(exchange, self._serve)

    def _ip(self, exchange: Exchange) -> str:
        request = exchange.request
        forwarded_for = request.headers.get("x-forwarded-for")
        return self._proxies.client_address(request.client, forwarded_for)

    def _serve(self, exchange: Exchange) -> Reply:
        ip, database = self._ip(exchange), self._services.database
        try:
            with database.read() as db:
                call = self._admit(db, exchange, ip)
                self._charge(exchange, ("scim", call.org.id))
                exchange.validate()
                if exchange.operation.extension("scim") == READS:
                    return exchange.invoke(call)
            with database.write() as db:
                # Before all else is read, so that what is read stays so until the commit.
                organizations.lock(db, call.org.id)
                return self._act(self._admit(db, exchange, ip))
        except _Failed as failed:
            return failed.reply
        except Unauthenticated:
            self._known.pop(token_sha256(_token(exchange) or ""), None)
            if VERDICT not in exchange.state:
                self._charge(exchange, *charges.by_address("refused", ip))
            raise

    def _act(self, call: ScimCall) -> Reply:
        refuse_closed(call.org)
        reply = call.exchange.invoke(call)
        if reply.status >= 400:  # noqa: PLR2004 -- an error, which leaves nothing behind
            raise _Failed(reply)
        return reply

    def _admit(self, db: Session, exchange: Exchange, ip: str) -> ScimCall:
        """Raises Unauthenticated alike for tokens that are unknown, expired and revoked."""
        secret = _token(exchange)
        token = None if secret is None else scim_tokens.by_token_hash(db, token_sha256(secret))
        now = self._services.database.now(db)
        if token is None or not token.is_live(now):
            raise Unauthenticated(
                "this needs a SCIM token of an organization that is neither expired nor revoked:"
                " send Authorization: Bearer mscim_…",
                headers={"WWW-Authenticate": REALM},
            )
        self._learn(token)
        self._last_used.note_record(token, now)
        tenancy.restrict(db, token.org_id)
        org = organizations.fetch(db, token.org_id)
        return ScimCall(db, org, token, exchange, now, self._services, ip)

    def _learn(self, token: ScimToken) -> None:
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[token.token_hash] = token.org_id

    def _charge(self, exchange: Exchange, *due: Charge) -> None:
        verdict = self._services.limiter.charge_all(due)
        exchange.state.setdefault(VERDICT, verdict)
        if verdict is not None and not verdict.allowed:
            exchange.state[VERDICT] = verdict
            raise TooManyRequests(
                f"too many requests; try again in {verdict.retry_after_s} s", code="rate_limited"
            )


def _token(exchange: Exchange) -> str | None:
    scheme, _, secret = exchange.request.headers.get("authorization", "").partition(" ")
    secret = secret.strip()
    return secret if scheme.lower() == "bearer" and is_scim_token(secret) else None
