"""Whom a request counts for, and in which windows of `rates`."""

from collections.abc import Iterator
from typing import TypeAlias

from control.boundary.addresses import networks, rate_key
from control.boundary.callers import Caller
from control.boundary.rates import BY_NETWORK
from control.boundary.rules import Rule

Charge: TypeAlias = tuple[str, str]
"""A kind of windows, and the key to count under."""


def of(rule: Rule, caller: Caller | None, ip: str) -> Iterator[Charge]:
    """The charges of one request, the one that answers tell of first."""
    if caller is None or rule.rate == "unauthenticated":
        return by_address(rule.rate, ip)
    return _by_caller(rule, caller)


def of_refused(caller: Caller | None, ip: str) -> Iterator[Charge]:
    """Those of a request that was turned away before its charges were known."""
    if caller is None:
        return by_address("refused", ip)
    return iter([("default", caller.credential_id)])


def by_address(rate: str, ip: str) -> Iterator[Charge]:
    """Those of an address: its own, and where so many addresses are cheap, its network's."""
    yield rate, rate_key(ip)
    if rate in BY_NETWORK:
        # A network is no more than some of its addresses: a /48 of IPv6 has 65,536.
        yield f"{rate}_network", networks(ip)[1]


def _by_caller(rule: Rule, caller: Caller) -> Iterator[Charge]:
    """Where secrets are fetched, it is the person.

    Guesses are the session's here, as one must not use up another's; `accounts` counts them too.
    An API key is counted by itself, so that it blocks nothing of its maker's; and all keys that one
    person made in an organization together where many of them must do no more than a few: fetch
    secrets, and make changes, each of which leaves a record. A person has many sessions too.
    """
    person, key = caller.user.id, caller.key
    together = f"{key.org_id}:{person}" if key else person
    if rule.rate == "reveal" and key is None:
        yield "reveal", person
        return
    yield rule.rate, caller.credential_id
    if rule.rate == "reveal":
        yield "reveal_keys", together
    if rule.leaves_records:
        yield "changes", together
