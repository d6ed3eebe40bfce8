"""Tries at an account's secrets: counted by the account too, as an attacker has many addresses.

There is one count for each account, also for one that is not there. Who has the token of an
earlier session is not in it; and from an address where the account was used before, the right
password is let in however full it is. So no stranger locks an owner out, nor learns, at an address
that they share with the owner, which accounts are used there.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass

from control import identity
from control.boundary import credentials
from control.boundary.addresses import rate_key
from control.boundary.credentials import Caller
from specserver import Exchange, Unauthenticated
from storage import sessions, users
from storage.database import Database


@dataclass(frozen=True)
class Count:
    """Under what a try is counted; `yields` where a right password is let in all the same."""

    key: str
    yields: bool = False


def counted_as(
    exchange: Exchange, caller: Caller | None, ip: str, database: Database
) -> Count | None:
    """None for one who shows that they are known there."""
    if caller is not None:
        return Count(f"session:{caller.session.id if caller.session else caller.user.id}")
    email = str(exchange.arguments["body"]["email"]).lower()
    token = None
    with suppress(Unauthenticated):  # what is no token of ours is as good as none
        token = credentials.bearer_token(exchange.request.headers.get("authorization"))
    with database.read() as db:
        user = users.by_email(db, email)
        former = sessions.by_token_hash(db, identity.token_sha256(token)) if token else None
        if user is not None and former is not None and former.user_id == user.id:
            return None
        used = {rate_key(one) for one in sessions.addresses(db, user.id)} if user else set()
    key = f"email:{hashlib.sha256(email.encode()).hexdigest()}"
    return Count(key, yields=rate_key(ip) in used)
