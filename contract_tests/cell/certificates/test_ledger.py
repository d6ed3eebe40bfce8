"""Pure parts: how long is waited, and what is kept."""

import datetime as dt
import time
from email.utils import format_datetime
from pathlib import Path

import pytest

from cell.certificates.acme.ledger import REMEMBERED_S, Account, AcmeOrder, DomainState, Ledger
from cell.certificates.acme.server import retry_after
from cell.database import Database
from cell.sealing import Sealer

HOST = "db.example.com"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(Database(tmp_path / "cell.db"), Sealer(b"k" * 32, "test"))


@pytest.mark.parametrize(
    ("times", "wait_s"), [(0, 300), (1, 300), (2, 600), (5, 4800), (99, 21600)]
)
def test_the_more_was_ordered_the_longer_is_waited(times: int, wait_s: float) -> None:
    assert DomainState(ordered_at=[0.0] * times).pace_s(300, 21_600) == wait_s
    assert DomainState(failures=times).pace_s(300, 21_600) == wait_s


def test_orders_are_remembered_for_a_week_and_longer_than_the_domain(ledger: Ledger) -> None:
    recent = time.time() - REMEMBERED_S / 2
    ledger.keep(HOST, DomainState(ordered_at=[time.time() - 2 * REMEMBERED_S, recent]))
    assert ledger.state(HOST).ordered_at == [recent]
    ledger.keep_order(HOST, "https://a", AcmeOrder("https://a/1", "key"))
    ledger.keep("old.example.com", DomainState(failures=3))
    ledger.forget_all_but([])
    assert ledger.order(HOST, "https://a") is None
    assert ledger.state(HOST).ordered_at == [recent]
    assert ledger.state("old.example.com") == DomainState()


def test_an_order_is_one_servers(ledger: Ledger) -> None:
    ledger.keep_order(HOST, "https://a", AcmeOrder("https://a/1", "key"))
    assert ledger.order(HOST, "https://b") is None
    assert ledger.order(HOST, "https://a") == AcmeOrder("https://a/1", "key")
    ledger.keep_account("https://a", Account("account key", None))
    assert ledger.account("https://a") == Account("account key", None)
    assert ledger.account("https://b") is None


def test_both_forms_of_retry_after_are_read() -> None:
    assert retry_after("120") == 120
    assert retry_after(None) is None
    assert retry_after("soon") is None
    now = dt.datetime.now(dt.UTC)
    later = retry_after(format_datetime(now + dt.timedelta(hours=1), usegmt=True))
    assert later is not None
    assert 3_500 < later <= 3_600
    assert retry_after(format_datetime(now - dt.timedelta(hours=1), usegmt=True)) == 0
