"""Tenants share the ACME server and the cell's account: what one does holds up no other."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cell.certificates.acme import certifier as certifying
from cell.certificates.acme import issuing
from cell.certificates.acme.certifier import Certifier
from cell.certificates.acme.ledger import Ledger
from cell.certificates.acme.problems import AcmeError
from cell.certificates.acme.schedule import (
    ATTEMPTS_MAX,
    HOUR_S,
    ORDERS_PER_HOUR,
    OrderSchedule,
)
from cell.certificates.served import ServedCertificates
from cell.database import Database
from cell.sealing import Sealer
from cell.settings import CellSettings

NAMES = {f"a{number}.example.com": "crowd" for number in range(40)}
VICTIM = "victim.example.org"


def chosen(schedule: OrderSchedule) -> str | None:
    return schedule.choose(lambda _: 0.0, lambda _: 0)


@pytest.fixture
def schedule() -> OrderSchedule:
    made = OrderSchedule()
    made.want({**NAMES, VICTIM: "victim"})
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(s=time.time())
    monkeypatch.setattr("cell.certificates.acme.schedule.time.time", lambda: now.s)
    return now


def test_a_tenant_has_one_attempt_at_a_time_and_tenants_take_turns(schedule: OrderSchedule) -> None:
    served = []
    for _ in range(4):
        host = chosen(schedule)
        assert host is not None
        served.append(schedule.begin(host))
        if len(served) == 1:
            other = chosen(schedule)
            assert other is not None
            assert schedule.hosts[other] != served[0], "its tenant is being served"
        schedule.end(served[-1])
    assert served in (["crowd", "victim"] * 2, ["victim", "crowd"] * 2)


def test_some_attempts_are_under_way_at_once() -> None:
    schedule = OrderSchedule()
    schedule.want({f"{number}.example.com": str(number) for number in range(ATTEMPTS_MAX + 1)})
    for _ in range(ATTEMPTS_MAX):
        host = chosen(schedule)
        assert host is not None
        tenant = schedule.begin(host)
    assert chosen(schedule) is None
    assert schedule.wait_s(lambda _: 0.0, 60) == 60
    schedule.end(tenant)
    assert chosen(schedule) is not None


def test_a_tenants_orders_of_an_hour_are_counted_also_once_it_has_no_domain(
    schedule: OrderSchedule, clock: SimpleNamespace
) -> None:
    for _ in range(ORDERS_PER_HOUR):
        schedule.ordered("crowd")
    schedule.want({VICTIM: "victim"})
    schedule.want(NAMES)
    assert chosen(schedule) is None
    assert schedule.wait_s(lambda _: 0.0, 2 * HOUR_S) == HOUR_S
    clock.s += HOUR_S
    assert chosen(schedule) in NAMES


def test_a_rate_limit_is_of_the_tenant_whose_domain_it_was_about(
    schedule: OrderSchedule, clock: SimpleNamespace
) -> None:
    schedule.rest("crowd", 60)
    assert chosen(schedule) == VICTIM
    schedule.want(NAMES)
    assert chosen(schedule) is None
    assert schedule.wait_s(lambda _: 0.0, 600) == 60
    clock.s += 60
    assert chosen(schedule) in NAMES


def test_a_tenant_that_keeps_the_server_waiting_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its forty domains would have taken a minute each, before the other's first attempt."""
    tried: list[str] = []
    begun, served = asyncio.Event(), asyncio.Event()

    async def fulfil(_: object, __: Path, host: str, ___: object) -> bytes:
        tried.append(host)
        if host in NAMES:
            begun.set()
            await asyncio.Event().wait()
        served.set()
        raise AcmeError("refused", "it does not lead here")

    server: Any = SimpleNamespace(order=lambda host: f"https://acme.test/{host}", register=str)
    monkeypatch.setattr(certifying, "connect", lambda *_: server)
    monkeypatch.setattr(issuing, "fulfil", fulfil)

    async def run() -> None:
        settings = CellSettings(tmp_path, "cell_1", b"", acme_directory="https://acme.test/dir")
        ledger = Ledger(Database(tmp_path / "cell.db"), Sealer(b"k" * 32, "test"))
        made = Certifier(settings, ledger, tmp_path, ServedCertificates(tmp_path))
        made.want(NAMES)
        async with asyncio.timeout(60):
            await begun.wait()
            made.want({**NAMES, VICTIM: "victim"})
            await served.wait()
        await made.close()

    asyncio.run(run())
    assert len(tried) == 2, "and of the crowd one is under way"


def test_who_certifies_ends_also_where_something_changes_at_that_moment(tmp_path: Path) -> None:
    """Python 3.11's `wait_for` forgets that it was cancelled once what it waits for is there."""

    async def run() -> None:
        settings = CellSettings(tmp_path, "cell_1", b"", acme_directory="https://acme.test/dir")
        ledger = Ledger(Database(tmp_path / "cell.db"), Sealer(b"k" * 32, "test"))
        made = Certifier(settings, ledger, tmp_path, ServedCertificates(tmp_path))
        for turns in range(4):
            made.want({VICTIM: "victim"})
            made._schedule.want({})
            made._changed.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            async with asyncio.timeout(5):
                await made.close()
            made._task = None

    asyncio.run(run())
