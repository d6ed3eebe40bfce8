"""Rate limits: which windows hold for whom, and the headers that tell callers of them.

A minute's allowance holds in any 60 seconds; of it, a burst may come within any 5 seconds.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from limits.errors import ConfigurationError
from limits.errors import StorageError as LibraryStorageError
from limits.storage import Storage, storage_from_string

from control.boundary.redis_windows import RedisMeter, check_url, connect, is_redis
from control.boundary.shared_windows import DatabaseMeter
from control.boundary.windows import Count, LibraryMeter, LocalWindows, Meter, Use, Window
from control.settings import ControlSettings, RateLimits
from storage.database import Database

_MINUTE_S = 60
_QUARTER_HOUR_S = 900
# So long the counters are left alone after they failed: no request in between waits for them.
_LEFT_ALONE_S = 1.0
VERDICT = "rate_limit"
"""Where an exchange keeps the verdict that its caller is told of."""
BY_NETWORK = ("unauthenticated", "authentication", "discovery", "device", "refused", "pages")
"""What counts by address; a window of the address's network, `{name}_network`, is beside it."""
_NO_STORAGE = "must be memory, database, or a redis:// or valkey:// URL"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Verdict:
    """Whether the request may pass, and what its caller has left."""

    allowed: bool
    uses: tuple[Use, ...]

    @property
    def retry_after_s(self) -> int:
        """Whole seconds, and never so few that a request would be refused again."""
        return max((math.floor(use.reset_s) + 1 for use in self.uses if use.full), default=1)

    @property
    def headers(self) -> dict[str, str]:
        """As in the IETF's draft: r is what remains, t the seconds until some of it comes back."""
        policies, states = [], []
        for use in self.uses:
            window, left = use.window, max(0, use.window.amount - use.used)
            policies.append(f'"{window.name}";q={window.amount};w={window.length_s}')
            states.append(f'"{window.name}";r={left};t={math.ceil(use.reset_s)}')
        headers = {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(states)}
        return headers if self.allowed else {**headers, "Retry-After": str(self.retry_after_s)}


class Limiter:
    """Charges a request to its caller, under the limit the document names for the operation."""

    def __init__(
        self,
        meter: Meter | None,
        rates: RateLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without a meter nothing is limited."""
        self._meter = meter
        # For as long as the counters that are shared cannot be reached.
        self._own = LibraryMeter(LocalWindows(clock=clock), clock=clock)
        self._windows = _windows(rates)
        self._clock = clock
        self._asks_again_at = -math.inf

    def charge(self, rate: str, key: str) -> Verdict | None:
        """None where nothing is limited.

        An outage of the counters is no reason to refuse callers, nor to let them guess: each
        process counts its own requests then.
        """
        if self._meter is None:
            return None
        count = self._count(self._meter, f"{rate}:{key}", self._windows[rate])
        return Verdict(count.allowed, count.uses)

    def _count(self, meter: Meter, key: str, windows: Sequence[Window]) -> Count:
        if self._clock() >= self._asks_again_at:
            try:
                return meter.charge(key, windows)
            except LibraryStorageError as error:
                _log.warning("rate_limits_unavailable", reason=str(error))
                self._asks_again_at = self._clock() + _LEFT_ALONE_S
        return self._own.charge(key, windows)

    def charge_all(self, due: Iterable[tuple[str, str]]) -> Verdict | None:
        """The first of the verdicts, or the one that refuses, after which nothing is charged."""
        first: Verdict | None = None
        for number, (rate, key) in enumerate(due):
            verdict = self.charge(rate, key)
            if verdict is not None and not verdict.allowed:
                return verdict
            first = verdict if number == 0 else first
        return first


def make_limiter(where: str, settings: ControlSettings, database: Database) -> Limiter:
    """`where`: "memory" (one process), "database" (shared by replicas), or a redis:// URL."""
    if not settings.rate_limits:
        return Limiter(None, settings.rates)
    if where == "memory":
        return Limiter(LibraryMeter(LocalWindows()), settings.rates)
    if where == "database":
        return Limiter(DatabaseMeter(database), settings.rates)
    if is_redis(where):
        return Limiter(RedisMeter(connect(where)), settings.rates)
    try:
        storage = storage_from_string(where, wrap_exceptions=True)
    except ConfigurationError:
        raise ConfigurationError(_NO_STORAGE) from None  # the library's words hold the URL
    assert isinstance(storage, Storage), "an asynchronous storage cannot be used from threads"
    return Limiter(LibraryMeter(storage), settings.rates)


def check_storage(where: str) -> None:
    """Raises the library's ConfigurationError; asks no server, and repeats no password."""
    if is_redis(where):
        check_url(where)
    elif where not in {"memory", "database"} and "://" not in where:
        raise ConfigurationError(_NO_STORAGE)


def _windows(rates: RateLimits) -> Mapping[str, tuple[Window, ...]]:
    windows = {
        "default": (
            Window("default", rates.per_minute, _MINUTE_S),
            Window("burst", rates.burst, rates.burst_window_s),
        ),
        "unauthenticated": (
            Window("unauthenticated", rates.unauthenticated_per_minute, _MINUTE_S),
        ),
        "pages": (Window("pages", rates.pages_per_minute, _MINUTE_S),),
        "authentication": (Window("authentication", rates.authentication_per_minute, _MINUTE_S),),
        "discovery": (Window("discovery", rates.discovery_per_minute, _MINUTE_S),),
        "device": (Window("device", rates.device_per_minute, _MINUTE_S),),
        "account": (Window("account", rates.account_per_quarter_hour, _QUARTER_HOUR_S),),
        # How often people are told that an account's is full.
        "refused_account": (Window("refused_account", 1, _QUARTER_HOUR_S),),
        "account_address": (
            Window("account_address", rates.account_address_per_quarter_hour, _QUARTER_HOUR_S),
        ),
        "account_network": (
            Window("account_network", rates.account_network_per_quarter_hour, _QUARTER_HOUR_S),
        ),
        "reveal": (Window("reveal", rates.reveal_per_minute, _MINUTE_S),),
        "reveal_keys": (Window("reveal_keys", rates.reveal_keys_per_minute, _MINUTE_S),),
        "changes": (Window("changes", rates.changes_per_quarter_hour, _QUARTER_HOUR_S),),
        # What an identity provider pushes into one organization.
        "scim": (
            Window("scim", rates.scim_per_minute, _MINUTE_S),
            Window("scim_burst", rates.scim_burst, rates.burst_window_s),
        ),
        "refused": (Window("refused", rates.refused_per_minute, _MINUTE_S),),
    }
    for name in BY_NETWORK:
        amount = windows[name][0].amount * rates.network_times
        windows[f"{name}_network"] = (Window(f"{name}_network", amount, _MINUTE_S),)
    return windows
