"""Guesses at an account's secrets: counted by account too, as an attacker has many addresses.

Passwords: one count for each account, also for one that is not there; beyond it, each address has
a few tries of its own, and from where a live session of the account began the right password is
let in however full the counts are. So no stranger locks an owner out, nor learns, at an address
that they share with the owner, which accounts are used there.

Codes: one count for each user, as whoever guesses at them knows the password and can be anywhere.

Where the domain of the address enforces single sign-on, nothing is looked at, and nothing counted.

Tokens of letters: one count for each, as each is good for as many passwords as are refused.

A live session is counted by itself, and guesses nothing of its user's: at passwords any, at codes
one that has passed the second factor, which the password alone does not give.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass

from control.boundary import callers, identity, passwords
from control.boundary.addresses import networks, rate_key
from control.boundary.callers import Caller
from control.boundary.rates import VERDICT, Verdict
from control.boundary.rules import Rule
from control.services import Services
from control.sso import enforcement
from control.workflows.events import refused_sign_ins
from specserver import Exchange, TooManyRequests, Unauthenticated
from storage.access import sessions, users
from storage.access.sessions import UserSession
from storage.database import Database


@dataclass(frozen=True)
class _Guesser:
    """Whose secrets a request guesses at, and the live session that shows who is guessing."""

    user_id: str | None
    account: str
    session: UserSession | None
    is_at_home: bool = False


def charge(
    exchange: Exchange, rule: Rule, caller: Caller | None, ip: str, services: Services
) -> None:
    """Raises TooManyRequests once enough was guessed. To be called outside of any transaction."""
    body = exchange.arguments.get("body") or {}
    if rule.token in body:
        _charge_token(exchange, str(body[rule.token]), services)
    with_password = rule.password in body
    with_code = rule.code in body
    if not (with_password or with_code):
        return
    if with_password and caller is None and not body.get("break_glass"):
        with services.database.read() as db:
            enforcement.refuse_other_ways(db, str(body["email"]), services.settings.base_url)
    attempt = _Attempt(exchange, rule, caller, ip, services)
    if with_password:
        attempt.charge_password()
    # No code is looked at beside a wrong password: strangers cannot use an owner's codes up.
    if with_code and attempt.is_password_right():
        attempt.charge_code()


def _charge_token(exchange: Exchange, token: str, services: Services) -> None:
    verdict = services.limiter.charge("account", f"token:{identity.token_sha256(token)}")
    if verdict is not None and not verdict.allowed:
        exchange.state[VERDICT] = verdict
        raise TooManyRequests(
            f"too many attempts with this token; wait {verdict.retry_after_s} s",
            code="account_rate_limited",
        )


class _Attempt:
    def __init__(
        self, exchange: Exchange, rule: Rule, caller: Caller | None, ip: str, services: Services
    ) -> None:
        self._exchange, self._rule, self._caller, self._ip = exchange, rule, caller, ip
        self._services = services
        self._guesser = _guesser(exchange, caller, ip, services.database)

    def is_password_right(self) -> bool:
        member = self._rule.password
        if member is None:
            return True
        return passwords.prove(self._exchange, member, self._caller, self._services)

    def charge_password(self) -> None:
        guesser = self._guesser
        if guesser.session is not None:
            full = self._full("account", f"session:{guesser.session.id}")
            if full is not None:
                wait = f"wait {full.retry_after_s} s"
                raise self._refused(full, f"too many attempts with this session; {wait}")
            return
        if self._full("account", guesser.account) is None:
            return
        refused_sign_ins.note(self._services, guesser.account, guesser.user_id, "password")
        if (full := self._full_here()) is None:
            return
        # A password is looked at in any case, as the time it takes would tell who is known.
        if not (self.is_password_right() and guesser.is_at_home):
            raise self._refused(
                full,
                "too many attempts for this account, and from your address; sign in from a device"
                " that is still signed in (`menagerie login` sends its session; other clients send"
                " its token as a bearer token) or from the address it signed in from, or wait"
                f" {full.retry_after_s} s",
            )

    def charge_code(self) -> None:
        session, user_id = self._guesser.session, self._guesser.user_id
        passed = session is not None and session.mfa_at is not None
        counted = session.id if session and passed else user_id
        if session is not None and session.sso_org_id is not None:
            # Its provider can open any number, and use up nothing of what the person has elsewhere.
            counted = f"{user_id}:{session.sso_org_id}"
        full = self._full("account", f"code:{counted}")
        if full is not None:
            if not passed and user_id is not None:
                refused_sign_ins.note(self._services, user_id, user_id, "code")
            raise self._refused(
                full,
                "too many codes were tried for this account, by somebody who knows its password;"
                " send the code from a session that has passed the second factor before, which is"
                f" counted separately, or wait {full.retry_after_s} s",
                code="code_rate_limited",
            )

    def _full_here(self) -> Verdict | None:
        """Of what each address may try beyond the account's count, and each network."""
        for rate, place in zip(_PLACES, networks(self._ip), strict=True):
            full = self._full(rate, f"{self._guesser.account}:{place}")
            if full is not None:
                return full
        return None

    def _full(self, rate: str, key: str) -> Verdict | None:
        verdict = self._services.limiter.charge(rate, key)
        return None if verdict is None or verdict.allowed else verdict

    def _refused(
        self, verdict: Verdict, detail: str, code: str = "account_rate_limited"
    ) -> TooManyRequests:
        self._exchange.state[VERDICT] = verdict
        return TooManyRequests(detail, code=code)


_PLACES = ("account_address", "account_network")
_NOBODY = "user_none"
"""An id that no user has."""


def _guesser(exchange: Exchange, caller: Caller | None, ip: str, database: Database) -> _Guesser:
    if caller is not None:
        return _Guesser(caller.user.id, "", caller.session)
    email = str(exchange.arguments["body"]["email"]).lower()
    account = f"email:{hashlib.sha256(email.encode()).hexdigest()}"
    token = None
    with suppress(Unauthenticated):  # what is no token of ours is as good as none
        token = callers.bearer_token(exchange.request.headers.get("authorization"))
    with database.read() as db:
        user = users.by_email(db, email)
        # The same is asked where there is nobody: the time it takes would tell who is known.
        user_id = user.id if user else _NOBODY
        now = database.now(db)
        own = sessions.by_token_hash(db, identity.token_sha256(token)) if token else None
        if own is not None and not (own.user_id == user_id and own.is_live(now)):
            own = None
        if own is not None and own.sso_org_id is not None:
            own = None  # a provider can open any number, and guess with each
        homes = {rate_key(one) for one in sessions.addresses(db, user_id, now)}
    return _Guesser(user.id if user else None, account, own, rate_key(ip) in homes)
