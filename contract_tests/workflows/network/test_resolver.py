"""However long a chain of names is, and however late each answers, a look-up ends."""

import asyncio
import time

import dns.exception
import dns.resolver
import pytest

from contract_tests.name_server import NOBODY, NameServer
from control.workflows.network.dns import DnsResolver, Found, LookupFailed


def asked(resolver: DnsResolver) -> Found | LookupFailed:
    (found,) = resolver.cnames(["first.example.org"]).values()
    return found


def test_a_chain_of_late_answers_has_the_time_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comes just before it would be given up."""

    class Answer:
        target = "next.example.org."

    async def resolve(*_: object, lifetime: float = 0.2, **_more: object) -> list[Answer]:
        late_s = 0.15
        await asyncio.sleep(min(late_s, lifetime))
        if lifetime < late_s:
            raise dns.resolver.LifetimeTimeout(timeout=lifetime, errors=[])  # type: ignore[no-untyped-call]
        return [Answer()]

    found = DnsResolver([NOBODY], lookup_s=0.2)
    monkeypatch.setattr(found._resolver, "resolve", resolve)
    assert isinstance(asked(found), LookupFailed)


def test_what_a_name_server_says_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: object, **_more: object) -> None:
        said = "it said \x1b[2J\nbad \0" + "x" * 9999
        raise dns.exception.DNSException(said)  # type: ignore[no-untyped-call]

    found = DnsResolver([NOBODY])
    monkeypatch.setattr(found._resolver, "resolve", resolve)
    failed = asked(found)
    assert isinstance(failed, LookupFailed)
    assert failed.detail.isprintable()
    assert len(failed.detail) < 1_000


def test_names_are_asked_for_at_once() -> None:
    """A name server that does not answer costs all of them the time of one."""
    names = NameServer()
    names.records["good.example.org"] = "db.example.com"
    names.silent = {f"{number}.dead.example.org" for number in range(40)}
    names.start()
    began = time.monotonic()
    found = DnsResolver([names.address], lookup_s=1).cnames({"good.example.org", *names.silent})
    names.close()
    assert time.monotonic() - began < 20, "40 s one after the other"
    assert found.pop("good.example.org") == Found(("db.example.com",))
    assert found.keys() == names.silent
    assert all(isinstance(each, LookupFailed) for each in found.values())
