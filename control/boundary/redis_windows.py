"""Moving windows in Redis or Valkey: one count for all replicas, by that server's clock."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import structlog
from limits.errors import ConfigurationError, StorageError

from control.boundary.windows import Count, Use, Window

if TYPE_CHECKING:  # an optional package, which only this storage needs
    from redis import Redis

# As they are written in settings, and as the package redis knows them.
SCHEMES: Final = {
    "redis": "redis",
    "rediss": "rediss",
    "redis+unix": "unix",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
    "valkey+unix": "unix",
}
# A request waits so long for its count; it is let in rather than kept waiting.
ANSWER_WITHIN_S: Final = 0.25
_START_WITHIN_S: Final = 5.0
_MICROS: Final = 1_000_000
_KEEP_S: Final = 60
_log = structlog.get_logger(__name__)

# All windows of a caller are looked at and charged in one step, so a refusal is counted in none.
# Each is a list of moments in microseconds, newest first. ARGV: the moment or "", then per window
# its amount and its length in microseconds.
_CHARGE: Final = """
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local found, allowed = {}, 1
for i, key in ipairs(KEYS) do
  local newest = redis.call('LINDEX', key, 0)
  -- A clock set back must not put a request before those there are.
  if newest then now = math.max(now, tonumber(newest)) end
end
for i, key in ipairs(KEYS) do
  local amount, length = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  local oldest = redis.call('LINDEX', key, -1)
  while oldest and tonumber(oldest) <= now - length do
    redis.call('RPOP', key)
    oldest = redis.call('LINDEX', key, -1)
  end
  local used = redis.call('LLEN', key)
  if used >= amount then allowed = 0 end
  found[i] = {used, oldest and tonumber(oldest) + length - now or length}
end
if allowed == 1 then
  for i, key in ipairs(KEYS) do
    redis.call('LPUSH', key, string.format('%.0f', now))
    redis.call('PEXPIRE', key, ARGV[2 * i + 1] / 1000 + KEEP_MS)
    found[i][1] = found[i][1] + 1
  end
end
return {allowed, found}
""".replace("KEEP_MS", str(_KEEP_S * 1000))


class RedisMeter:
    """One round trip a request, exact across replicas. Raises the library's StorageError."""

    def __init__(self, client: Redis, *, clock: Callable[[], float] | None = None) -> None:
        """`clock` stands in for the server's, in tests."""
        self._charge = client.register_script(_CHARGE)
        self._clock = clock

    def charge(self, key: str, windows: Sequence[Window]) -> Count:
        from redis.exceptions import RedisError  # noqa: PLC0415 -- an optional package

        now = "" if self._clock is None else round(self._clock() * _MICROS)
        # The braces put a caller's windows on one node of a cluster.
        keys = [f"menagerie:rates:{{{key}}}:{window.name}" for window in windows]
        limits = [
            number for window in windows for number in (window.amount, window.length_s * _MICROS)
        ]
        try:
            answer: Any = self._charge(keys, [now, *limits])
        except (RedisError, OSError) as error:
            raise StorageError(error) from error
        allowed, found = answer
        uses = (
            Use(window, used, reset / _MICROS)
            for window, (used, reset) in zip(windows, found, strict=True)
        )
        return Count(allowed == 1, tuple(uses))


def is_redis(where: str) -> bool:
    scheme, found, _ = where.partition("://")
    return bool(found) and scheme in SCHEMES


def check_url(where: str) -> None:
    """Raises ConfigurationError, in words that hold no part of the URL: it may hold a password."""
    if importlib.util.find_spec("redis") is None:
        raise ConfigurationError(
            "rate limits in Redis need the extra redis: run pip install -e '.[redis]'"
        )
    try:
        parts = urlsplit(where)
        named = bool(parts.path if parts.scheme.endswith("unix") else parts.hostname)
        usable = named and (parts.port is None or parts.port > 0)
        usable = usable and (
            parts.scheme.endswith("unix") or re.fullmatch(r"/?|/\d+", parts.path) is not None
        )
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(
            "not a valid Redis URL; use redis://[user]:[password]@host:6379/0, rediss:// for TLS,"
            " or redis+unix:///path, and percent-encode special characters in the password"
        )


def connect(where: str, within_s: float | None = None) -> Redis:
    """A client of a server that may be away; ConfigurationError where it refuses who we are."""
    check_url(where)
    from redis import Redis  # noqa: PLC0415 -- an optional package
    from redis.backoff import NoBackoff  # noqa: PLC0415 -- see above
    from redis.exceptions import AuthenticationError, RedisError, ResponseError  # noqa: PLC0415
    from redis.retry import Retry  # noqa: PLC0415 -- see above

    scheme, _, rest = where.partition("://")
    url = f"{SCHEMES[scheme]}://{rest}"
    # Patience at the start, when nobody waits for an answer yet.
    with Redis.from_url(
        url,
        socket_timeout=_START_WITHIN_S,
        socket_connect_timeout=_START_WITHIN_S,
        retry=Retry(NoBackoff(), 0),
    ) as probe:
        try:
            probe.ping()
        except (AuthenticationError, ResponseError) as error:
            raise ConfigurationError(
                f"the Redis server for rate limits refused the connection: {error}"
            ) from None
        except (RedisError, OSError) as error:
            # Away now, back later. Until then nothing is counted.
            _log.warning("rate_limits_unavailable", reason=str(error))
    within_s = within_s or ANSWER_WITHIN_S
    client: Redis = Redis.from_url(
        url,
        socket_timeout=within_s,
        socket_connect_timeout=within_s,
        # Once, at once: a connection from before a restart of the server is found dead.
        retry=Retry(NoBackoff(), 1),
    )
    return client
