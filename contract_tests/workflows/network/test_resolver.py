"""However long a chain of names is, and however late each answers, a look-up ends."""

import time

import dns.exception
import dns.resolver
import pytest

from contract_tests.name_server import NOBODY
from control.workflows.network.dns import DnsResolver, LookupFailed


def test_a_chain_of_late_answers_has_the_time_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comes just before it would be given up."""

    class Answer:
        target = "next.example.org."

    def resolve(*_: object, lifetime: float = 0.2, **_more: object) -> list[Answer]:
        late_s = 0.15
        time.sleep(min(late_s, lifetime))
        if lifetime < late_s:
            raise dns.resolver.LifetimeTimeout(timeout=lifetime, errors=[])  # type: ignore[no-untyped-call]
        return [Answer()]

    found = DnsResolver([NOBODY], lookup_s=0.2)
    monkeypatch.setattr(found._resolver, "resolve", resolve)
    with pytest.raises(LookupFailed):
        found.cname("first.example.org")


def test_what_a_name_server_says_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **_more: object) -> None:
        said = "it said \x1b[2J\nbad \0" + "x" * 9999
        raise dns.exception.DNSException(said)  # type: ignore[no-untyped-call]

    found = DnsResolver([NOBODY])
    monkeypatch.setattr(found._resolver, "resolve", resolve)
    with pytest.raises(LookupFailed) as failed:
        found.cname("first.example.org")
    assert failed.value.detail.isprintable()
    assert len(failed.value.detail) < 1_000
