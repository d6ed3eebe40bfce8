"""Rate limits counted in a real Redis: exact across replicas, and no reason to refuse when away."""

import importlib.util
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from limits.errors import ConfigurationError
from structlog.testing import capture_logs

from contract_tests.boundary.redis_server import PASSWORD, RedisServer
from contract_tests.kept_port import KeptPort
from control.boundary import redis_windows
from control.boundary.rates import Limiter, Verdict, make_limiter
from control.boundary.redis_windows import RedisMeter, connect
from control.settings import ControlSettings, RateLimits
from menagerie.errors import SettingsError
from menagerie.redaction import redacted
from menagerie.settings import load
from storage.database import Database

SETTINGS = ControlSettings(cursor_key=b"k" * 32)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    # The path of a unix socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="rd"))
    made = RedisServer(folder)
    made.start()
    yield made
    made.close()
    shutil.rmtree(folder)


@pytest.fixture
def empty(server: RedisServer) -> RedisServer:
    server.stop()
    server.start()
    return server


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with much to do an answer may take longer than a service would wait."""
    monkeypatch.setattr(redis_windows, "ANSWER_WITHIN_S", 20)
    monkeypatch.setattr(redis_windows, "_START_WITHIN_S", 60)


class Clock:
    """By which a limiter leaves a silent server alone; moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def limiter(where: str, rates: RateLimits = SETTINGS.rates) -> Limiter:
    # The database is not asked: its file need not be.
    settings = replace(SETTINGS, rates=rates)
    return make_limiter(where, settings, Database("sqlite:////nowhere/unused.db"))


def limiter_by(clock: Callable[[], float], server: RedisServer) -> Limiter:
    return Limiter(RedisMeter(connect(server.url)), RateLimits(), clock=clock)


def charge(one: Limiter, rate: str = "default", key: str = "key_1") -> Verdict:
    verdict = one.charge(rate, key)
    assert verdict is not None
    return verdict


@pytest.mark.usefixtures("patient")
def test_two_replicas_let_in_what_one_would(empty: RedisServer) -> None:
    """Promise: within 1 %. Here it is none, with sixteen threads that all want in at once."""
    # A window that does not move on, however long the machine takes.
    rates = RateLimits(burst_window_s=60)
    urls = (empty.url, empty.socket_url.replace("redis", "valkey"))
    replicas = [limiter(url, rates) for url in urls]
    with ThreadPoolExecutor(16) as threads:
        verdicts = list(threads.map(lambda n: charge(replicas[n % 2]), range(400)))
    let_in = sum(one.allowed for one in verdicts)
    assert let_in == 100
    assert max(one.uses[0].used for one in verdicts) == let_in, "a refusal is counted in no window"
    refused = next(one for one in verdicts if not one.allowed)
    assert 1 <= refused.retry_after_s <= 61


@pytest.mark.usefixtures("patient")
def test_a_flood_of_seconds_gets_its_allowance_and_no_more(empty: RedisServer) -> None:
    """Two replicas together get each burst in full and no more, by the server's clock.

    When the server counted is known only to lie between question and answer, so what is judged
    is what certainly lies within one window, and what possibly does.
    """
    burst, window_s, slack_s = 40, 1, 0.02
    rates = RateLimits(burst=burst, burst_window_s=window_s)
    replicas = [limiter(empty.url, rates) for _ in range(2)]
    let_in: list[tuple[float, float]] = []
    refused: list[tuple[float, float]] = []
    while len(let_in) < 3 * burst:
        for replica in replicas:
            asked = time.monotonic()
            allowed = charge(replica).allowed
            (let_in if allowed else refused).append((asked, time.monotonic()))
        time.sleep(0.002)
    for start, _ in let_in:
        end = start + window_s - slack_s
        assert sum(asked >= start and told < end for asked, told in let_in) <= burst
    for moment, end in refused:
        start = moment - window_s - slack_s
        assert sum(told > start and asked < end for asked, told in let_in) >= burst
    assert refused


def is_away(one: Limiter) -> bool:
    """Whether it finds that its server does not answer; callers are counted all the same."""
    with capture_logs() as lines:
        charge(one)
    return [line["event"] for line in lines] == ["rate_limits_unavailable"]


@pytest.mark.usefixtures("patient")
def test_in_an_outage_each_process_counts_says_so_and_it_passes(empty: RedisServer) -> None:
    clock = Clock()
    one = limiter_by(clock, empty)
    for _ in range(5):
        charge(one, "reveal")
    assert not charge(one, "reveal").allowed
    empty.stop()
    with capture_logs() as lines:
        for let_in in (5, 0, 0):
            told = [charge(one, "reveal").allowed for _ in range(100)]
            assert told == [True] * let_in + [False] * (100 - let_in)
            clock.now += 1.01
    warnings = [line for line in lines if line["event"] == "rate_limits_unavailable"]
    # Not for each request: one line a second, and one wait a second.
    assert [line["log_level"] for line in warnings] == ["warning"] * 3
    assert PASSWORD not in str(lines)
    empty.start()
    assert [charge(one, "reveal").allowed for _ in range(6)] == [True] * 5 + [False]


def test_a_server_that_hangs_keeps_nobody_waiting(empty: RedisServer) -> None:
    clock = Clock()
    one = limiter_by(clock, empty)
    deadline = time.monotonic() + 60
    while is_away(one):
        assert time.monotonic() < deadline, "the server never answered in time"
        clock.now += 1.01
    took_s = []
    assert empty.process is not None
    empty.process.send_signal(signal.SIGSTOP)
    try:
        with capture_logs() as lines:
            for _ in range(3):
                started = time.monotonic()
                for _ in range(100):
                    charge(one)
                took_s.append(time.monotonic() - started)
                clock.now += 1.01
    finally:
        empty.process.send_signal(signal.SIGCONT)
    assert len(lines) == 3, "one request in a second finds out, and the others do not ask"
    # The shortest, as the machine may stand still for a while.
    assert min(took_s) < 2


def test_a_server_that_is_away_at_the_start_is_no_reason_not_to_start() -> None:
    with KeptPort() as port:
        assert is_away(limiter(f"redis://127.0.0.1:{port.number}"))


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("account", ["", ":wrong@", "nobody:wrong@"])
def test_a_password_that_is_refused_ends_the_start(server: RedisServer, account: str) -> None:
    with pytest.raises(ConfigurationError, match="refused the connection") as refused:
        limiter(f"redis://{account}127.0.0.1:{server.port}")
    assert "wrong@" not in str(refused.value)


WRONG = [
    f"redis://:{PASSWORD}#@host:6379",
    f"redis://:{PASSWORD}@host:port",
    f"redis://:{PASSWORD}@",
    f"redis://:{PASSWORD}@host/people",
    "redis+unix://",
    "redis",
    "carrier pigeon",
]


@pytest.mark.parametrize("where", WRONG)
def test_a_url_that_is_none_is_said_at_the_start(where: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="rate_limit_storage: ") as refused:
        load(home=tmp_path, rate_limit_storage=where)
    assert PASSWORD not in f"{refused.value}{refused.value.__cause__}"


def test_a_scheme_nobody_knows_is_said_without_the_url() -> None:
    with pytest.raises(ConfigurationError, match="memory, database, or a redis://") as refused:
        limiter(f"pigeon://:{PASSWORD}@host")
    assert PASSWORD not in str(refused.value)


def test_without_the_package_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def find(name: str, *rest: Any) -> Any:
        return None if name == "redis" else found(name, *rest)

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(SettingsError, match=r"pip install -e '\.\[redis\]'"):
        load(home=tmp_path, rate_limit_storage="redis://host")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:pass@host:6379/0", "redis://:***@host:6379/0"),
        ("rediss://ann:p@ss@host", "rediss://ann:***@host"),
        ("redis+unix:///run/s?password=pass&db=1", "redis+unix:///run/s?password=***&db=1"),
        ("redis://host:6379", "redis://host:6379"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str, tmp_path: Path) -> None:
    assert redacted(load(home=tmp_path, rate_limit_storage=url))["rate_limit_storage"] == shown
    # Of a database there is no scheme for TLS.
    database, expected = (re.sub("rediss?", "postgresql", one, count=1) for one in (url, shown))
    assert redacted(load(home=tmp_path, database_url=database))["database_url"] == expected
