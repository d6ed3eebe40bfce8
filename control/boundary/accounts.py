"""Tries at an account's secrets: counted by the account too, as an attacker has many addresses.

Strangers share one count for each account, also for one that is not there. Who has signed in to it
before, from the same address or with the token of an earlier session, is not in that count, so
that no stranger locks an owner out.
"""

import hashlib
from contextlib import suppress

from control import identity
from control.boundary import credentials
from control.boundary.addresses import rate_key
from control.boundary.credentials import Caller
from specserver import Exchange, Unauthenticated
from storage import sessions, users
from storage.database import Database


def counted_as(
    exchange: Exchange, caller: Caller | None, ip: str, database: Database
) -> str | None:
    """Under what a try is counted; None for one who is known there."""
    if caller is not None:
        return f"session:{caller.session.id if caller.session else caller.user.id}"
    email = str(exchange.arguments["body"]["email"]).lower()
    if _is_known(exchange, email, ip, database):
        return None
    return f"email:{hashlib.sha256(email.encode()).hexdigest()}"


def _is_known(exchange: Exchange, email: str, ip: str, database: Database) -> bool:
    token = None
    with suppress(Unauthenticated):  # what is no token of ours is as good as none
        token = credentials.bearer_token(exchange.request.headers.get("authorization"))
    with database.read() as db:
        user = users.by_email(db, email)
        if user is None:
            return False
        if rate_key(ip) in {rate_key(one) for one in sessions.addresses(db, user.id)}:
            return True
        former = sessions.by_token_hash(db, identity.token_sha256(token)) if token else None
        return former is not None and former.user_id == user.id
