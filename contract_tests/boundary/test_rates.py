"""Rate limits: the published figures, for every storage, on a clock the test moves."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits.errors import ConfigurationError, StorageError
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from contract_tests.boundary.conftest import EmptyDatabase
from contract_tests.boundary.redis_server import RedisServer
from contract_tests.databases import DIALECTS
from control.boundary.addresses import Proxies, networks, rate_key
from control.boundary.rates import Limiter, Verdict, check_storage, make_limiter
from control.boundary.redis_windows import RedisMeter, connect
from control.boundary.shared_windows import DatabaseMeter
from control.boundary.windows import LibraryMeter, LocalWindows
from control.settings import ControlSettings, RateLimits
from storage import rate_windows
from storage.database import Database


class Clock:
    """Starts at any moment; moves when told."""

    def __init__(self) -> None:
        self.now = 1_000_000.25

    def __call__(self) -> float:
        return self.now


class StoppedDatabase(Database):
    """A database whose clock is the test's."""

    def __init__(self, url: str, clock: Clock) -> None:
        super().__init__(url)
        self.clock = clock

    def now(self, _db: Session) -> datetime:
        return datetime.fromtimestamp(self.clock.now, UTC)


Replicas = tuple[Clock, list[Limiter]]


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    # The path of a unix socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="rd"))
    server = RedisServer(folder)
    server.start()
    yield server
    server.close()
    shutil.rmtree(folder)


@pytest.fixture(params=["memory", "redis", *DIALECTS])
def replicas(request: pytest.FixtureRequest, empty_database: EmptyDatabase) -> Iterator[Replicas]:
    """The limiters of one service: one in memory, or three on a database or a Redis."""
    clock, rates = Clock(), RateLimits()
    if request.param == "redis":
        server = request.getfixturevalue("redis_server")
        server.client().flushall()
        urls = (server.url, server.socket_url, server.url)
        clients = [connect(url, within_s=20) for url in urls]
        yield clock, [Limiter(RedisMeter(one, clock=clock), rates) for one in clients]
        return
    if request.param == "memory":
        yield clock, [Limiter(LibraryMeter(LocalWindows(clock=clock), clock=clock), rates)]
        return
    url = empty_database(str(request.param))
    databases = [StoppedDatabase(url, clock) for _ in range(3)]
    yield clock, [Limiter(DatabaseMeter(database), rates) for database in databases]
    for database in databases:
        database.dispose()


def charge(limiter: Limiter, rate: str = "default", key: str = "key_1") -> Verdict:
    verdict = limiter.charge(rate, key)
    assert verdict is not None
    return verdict


def test_a_burst_is_100_and_a_minute_is_600_across_replicas(replicas: Replicas) -> None:
    clock, limiters = replicas
    let_in: list[float] = []
    asked = 0
    end = clock.now + 66
    while clock.now < end:
        refused = 0
        while refused < len(limiters):
            asked += 1
            if charge(limiters[asked % len(limiters)]).allowed:
                let_in.append(clock.now)
                refused = 0
            else:
                refused += 1
        clock.now += 1.5
    for start in let_in:
        assert sum(start <= at < start + 60 for at in let_in) <= 600
        assert sum(start <= at < start + 5 for at in let_in) <= 100
    assert sum(at < let_in[0] + 60 for at in let_in) == 600


@pytest.mark.parametrize(
    ("rate", "per_minute"), [("unauthenticated", 60), ("authentication", 10), ("reveal", 5)]
)
def test_the_other_limits(replicas: Replicas, rate: str, per_minute: int) -> None:
    clock, limiters = replicas
    verdicts = [charge(limiters[n % len(limiters)], rate) for n in range(per_minute + 3)]
    assert [one.allowed for one in verdicts] == [True] * per_minute + [False] * 3
    clock.now += 59
    assert not charge(limiters[0], rate).allowed
    clock.now += 1.01
    assert charge(limiters[-1], rate).allowed


def test_keys_are_counted_apart(replicas: Replicas) -> None:
    _, limiters = replicas
    for _ in range(5):
        charge(limiters[0], "reveal", "usr_1")
    assert not charge(limiters[0], "reveal", "usr_1").allowed
    assert charge(limiters[0], "reveal", "usr_2").allowed
    assert charge(limiters[0], "authentication", "usr_1").allowed


@pytest.mark.nightly
def test_waiting_as_told_always_works(replicas: Replicas) -> None:
    clock, limiters = replicas
    waits = 0
    for n in range(500):
        verdict = charge(limiters[n % len(limiters)])
        if not verdict.allowed:
            waits += 1
            clock.now += int(verdict.headers["Retry-After"])
            assert charge(limiters[n % len(limiters)]).allowed
        clock.now += (n % 7) / 300
    assert waits > 3


def test_nobody_is_told_to_wait_longer_than_it_takes(replicas: Replicas) -> None:
    clock, limiters = replicas
    for _ in range(5):
        charge(limiters[0], "reveal")
    assert charge(limiters[0], "reveal").retry_after_s == 61
    clock.now += 59.5
    late = charge(limiters[0], "reveal")
    assert (late.allowed, late.retry_after_s) == (False, 1)
    assert late.headers["RateLimit"] == '"reveal";r=0;t=1'


def test_the_first_of_several_limits_is_told_or_the_one_that_refuses(replicas: Replicas) -> None:
    _, limiters = replicas
    both = [("reveal", "usr_1"), ("default", "key_1")]
    told = limiters[0].charge_all(both)
    assert told is not None
    assert [(use.window.name, use.used) for use in told.uses] == [("reveal", 1)]
    assert charge(limiters[0], "default", "key_1").uses[0].used == 2
    for _ in range(4):
        charge(limiters[0], "reveal", "usr_1")
    for due in (both, both[::-1]):
        refused = limiters[0].charge_all(due)
        assert refused is not None
        assert not refused.allowed
        assert refused.uses[0].window.name == "reveal"
    # What comes after the one that refuses is not charged.
    assert charge(limiters[0], "default", "key_1").uses[0].used == 4
    assert limiters[0].charge_all([]) is None


def test_what_is_refused_is_not_counted(replicas: Replicas) -> None:
    clock, limiters = replicas
    for _ in range(300):
        charge(limiters[0])
    clock.now += 5.01
    assert charge(limiters[0]).uses[0].used == 101


def test_the_headers_tell_policy_rest_and_time(replicas: Replicas) -> None:
    clock, limiters = replicas
    charge(limiters[0])
    clock.now += 2
    verdict = charge(limiters[-1])
    assert verdict.headers == {
        "RateLimit-Policy": '"default";q=600;w=60, "burst";q=100;w=5',
        "RateLimit": '"default";r=598;t=58, "burst";r=98;t=3',
    }


def test_a_limit_holds_under_concurrency(database_url: str) -> None:
    databases = [Database(database_url) for _ in range(2)]
    limiters = [Limiter(DatabaseMeter(one), RateLimits()) for one in databases]
    with ThreadPoolExecutor(8) as threads:
        verdicts = list(threads.map(lambda n: charge(limiters[n % 2], "authentication"), range(80)))
    assert sum(verdict.allowed for verdict in verdicts) == 10
    for database in databases:
        database.dispose()


def test_limits_can_be_switched_off_and_storages_are_named(database_url: str) -> None:
    database = Database(database_url)
    off = ControlSettings(cursor_key=b"k" * 32, rate_limits=False)
    on = ControlSettings(cursor_key=b"k" * 32)
    assert make_limiter("memory", off, database).charge("default", "k") is None
    for where in ("memory", "database"):
        assert make_limiter(where, on, database).charge("default", "k") is not None
    database.dispose()


def test_any_storage_of_the_library_with_moving_windows_will_do(database_url: str) -> None:
    database, settings = Database(database_url), ControlSettings(cursor_key=b"k" * 32)
    limiter = make_limiter("memory://", settings, database)
    began = time.monotonic()
    verdicts = [charge(limiter, "reveal") for _ in range(6)]
    took_s = time.monotonic() - began
    assert [one.allowed for one in verdicts] == [True] * 5 + [False]
    # The first was charged at some moment of these.
    assert 60 - ceil(took_s) <= verdicts[-1].retry_after_s <= 61
    with pytest.raises(ConfigurationError, match="must be memory, database, or a redis") as refused:
        make_limiter("carrier-pigeon://secret@host", settings, database)
    assert "secret" not in str(refused.value)
    database.dispose()


@pytest.mark.parametrize("where", ["memory", "database", "redis://h:1/0", "memory://"])
def test_where_counters_may_be_kept(where: str) -> None:
    check_storage(where)


def test_where_counters_cannot_be_kept_is_said_without_its_password() -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_storage("secret@host")
    assert str(refused.value) == "must be memory, database, or a redis:// or valkey:// URL"


def test_each_process_counts_for_itself_while_the_counters_are_down() -> None:
    class Down(LocalWindows):
        def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
            raise StorageError(ConnectionError(key, limit, expiry, amount))

    clock = Clock()
    down = Down(clock=clock)
    limiter = Limiter(LibraryMeter(down, clock=clock), RateLimits(), clock=clock)
    with capture_logs() as logs:
        first = charge(limiter, "account")
    assert first.allowed
    assert first.headers["RateLimit"] == '"account";r=9;t=900'
    (told,) = logs
    assert (told["event"], told["log_level"]) == ("rate_limits_unavailable", "warning")
    assert "key_1" in told["reason"]
    # They are left alone for a second, and then asked again.
    with capture_logs() as logs:
        clock.now += 0.5
        assert [charge(limiter, "account").allowed for _ in range(10)] == [True] * 9 + [False]
        assert charge(limiter, "account", "key_2").allowed
        assert logs == []
        clock.now += 0.5
        assert not charge(limiter, "account").allowed
        assert len(logs) == 1


def test_moments_are_counted_in_milliseconds(empty_database: EmptyDatabase) -> None:
    clock = Clock()
    database = StoppedDatabase(empty_database("sqlite"), clock)
    assert charge(Limiter(DatabaseMeter(database), RateLimits())).allowed
    with database.write() as db:
        assert list(rate_windows.lock(db, "default:key_1")) == [1_000_000_250]
    database.dispose()


# Of each kind of requests: the names that headers tell, how many, and in how many seconds.
LIMITS = {
    "default": [("default", 600, 60), ("burst", 100, 5)],
    "unauthenticated": [("unauthenticated", 60, 60)],
    "unauthenticated_network": [("unauthenticated_network", 720, 60)],
    "pages": [("pages", 120, 60)],
    "pages_network": [("pages_network", 1440, 60)],
    "authentication": [("authentication", 10, 60)],
    "authentication_network": [("authentication_network", 120, 60)],
    "account": [("account", 10, 900)],
    "account_address": [("account_address", 3, 900)],
    "account_network": [("account_network", 12, 900)],
    "reveal": [("reveal", 5, 60)],
    "reveal_keys": [("reveal_keys", 20, 60)],
    "changes": [("changes", 1000, 900)],
    "refused": [("refused", 600, 60)],
    "refused_network": [("refused_network", 7200, 60)],
}


@pytest.mark.parametrize("rate", LIMITS)
def test_the_limits_of_an_installation_that_sets_none(rate: str) -> None:
    clock = Clock()
    limiter = Limiter(LibraryMeter(LocalWindows(clock=clock), clock=clock), RateLimits())
    windows = [use.window for use in charge(limiter, rate).uses]
    assert [(one.name, one.amount, one.length_s) for one in windows] == LIMITS[rate]


@given(st.lists(st.floats(0, 30), max_size=40), st.integers(1, 5), st.integers(1, 20))
def test_no_moving_window_ever_holds_more(gaps: list[float], limit: int, expiry: int) -> None:
    clock = Clock()
    windows = LocalWindows(clock=clock)
    let_in: list[float] = []
    for gap in gaps:
        clock.now += gap
        expected = sum(at > clock.now - expiry for at in let_in) < limit
        assert windows.get_moving_window("k", limit, expiry)[1] <= limit
        assert windows.acquire_entry("k", limit, expiry) == expected
        if expected:
            let_in.append(clock.now)


# In requests.


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.0.2.1", None, "192.0.2.1"),
        ("192.0.2.1", "1.1.1.1", "192.0.2.1"),
        ("10.0.0.1", "1.1.1.1", "1.1.1.1"),
        ("10.0.0.1", "1.1.1.1, 2.2.2.2", "2.2.2.2"),
        ("10.0.0.1", "1.1.1.1, 10.0.0.2", "1.1.1.1"),
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", "1.1.1.1, nonsense", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("::ffff:10.0.0.1", "2001:db8::1", "2001:db8::1"),
        (None, "1.1.1.1", "local"),
    ],
)
def test_the_client_is_the_nearest_address_not_trusted(
    peer: str | None, forwarded: str | None, address: str
) -> None:
    assert Proxies(["10.0.0.0/8"]).client_address(peer, forwarded) == address


def test_a_trusted_network_may_be_named_by_an_address_within_it() -> None:
    assert Proxies(["10.1.2.3/8"]).client_address("10.9.9.9", "1.1.1.1") == "1.1.1.1"
    assert Proxies(["10.1.2.3/8"]).client_address("11.9.9.9", "1.1.1.1") == "11.9.9.9"


def test_an_ipv6_network_counts_as_one() -> None:
    assert rate_key("2001:db8:1:2:3:4:5:6") == rate_key("2001:db8:1:2::1") == "2001:db8:1:2::/64"
    assert rate_key("192.0.2.1") == "192.0.2.1"
    assert rate_key("local") == "local"


def test_what_one_holder_has_and_what_many_have_together() -> None:
    """At home or with a small server it is a /56 of IPv6; a /48 is had for nothing."""
    assert networks("2001:db8:1:203::1") == ("2001:db8:1:200::/56", "2001:db8:1::/48")
    assert networks("192.0.2.7") == ("192.0.2.7", "192.0.2.0/24")
    assert networks("local") == ("local", "local")
