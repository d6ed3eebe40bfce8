"""Passwords: verified and hashed before any transaction, as either takes 20 ms of a CPU.

What was found goes into the request's state; the transaction sees that it still holds.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from control.boundary import identity
from control.boundary.breaches import BreachedPasswords
from control.boundary.callers import Caller
from control.policy.passwords import KNOWN, check_choice
from control.policy.violations import refuse, wrong
from control.services import Services
from specserver import Exchange
from storage.access import users
from storage.database import Database

_STATE = "password"


@dataclass(frozen=True)
class Proof:
    """A password held against the hash that was stored then; `new_hash` is to be stored next."""

    stored: str | None
    right: bool
    new_hash: str | None


def prove(exchange: Exchange, member: str, caller: Caller | None, services: Services) -> bool:
    """Whether the request may write: the password in this member of its body is right, or absent.

    It is the caller's, or else that of the user whose e-mail address the body gives.
    """
    body = exchange.arguments.get("body") or {}
    password = body.get(member)
    if password is None:
        return True
    if (found := proof_of(exchange)) is not None:
        # A full count of tries has looked at it already.
        return found.right
    stored = caller.user.password_hash if caller else _stored(body["email"], services.database)
    right = identity.verify_password(stored, password)
    new_hash = _next(stored, body, member, caller, services) if right else None
    exchange.state[_STATE] = Proof(stored, right, new_hash)
    return right


def chosen(password: str, about: Iterable[str], field: str, breaches: BreachedPasswords) -> str:
    """The hash of a password that somebody chooses; Invalid where it is easily guessed or known.

    `about` is what others know of them, `field` the member of the body that has it.
    """
    refuse(check_choice(password, about, field))
    if breaches.knows(password):
        refuse([wrong(field, "breached", KNOWN)])
    return identity.hash_password(password)


def proof_of(exchange: Exchange) -> Proof | None:
    found: Proof | None = exchange.state.get(_STATE)
    return found


def _stored(email: str, database: Database) -> str | None:
    with database.read() as db:
        user = users.by_email(db, email)
        return user.password_hash if user else None


def _next(
    stored: str | None,
    body: dict[str, str],
    member: str,
    caller: Caller | None,
    services: Services,
) -> str | None:
    if "new_password" in body:
        about = (caller.user.email, caller.user.name) if caller else ()
        return chosen(body["new_password"], about, "new_password", services.breaches)
    outdated = stored is not None and identity.password_needs_rehash(stored)
    return identity.hash_password(body[member]) if outdated else None
