"""`menagerie wait`: until the service is ready, or why it is not."""

import fcntl
import json
import os
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

import httpx

from clients.cli.output import plain
from gateway.bounded_answers import AnswerRefused, client
from menagerie import health
from menagerie.endpoints import endpoints_file
from menagerie.ownership import open_regular
from menagerie.settings import Settings

LOOK_EVERY_S: Final = 0.1
ASK_TIMEOUT_S: Final = 5.0
ENDPOINTS_BYTES_MAX: Final = 1 << 16


@dataclass(frozen=True)
class Seen:
    """What the service is like. `missing` is empty once it is ready."""

    url: str
    missing: str = ""
    told: str = ""
    """What does no harm yet."""


def wait(settings: Settings, url: str | None, timeout_s: float) -> int:
    """Says on stderr what is missing, as that changes. The exit status: 0 ready, 1 not in time."""
    began, told = time.monotonic(), ""
    # One for all looks: each loads the system's authorities, which takes more than the rest of one.
    with client(timeout=ASK_TIMEOUT_S) as http:
        while True:
            seen = _look(http, settings, url)
            if not seen.missing:
                print(f"Menagerie is ready: {seen.url}")  # noqa: T201 -- for people
                return 0
            waited_s = time.monotonic() - began
            if waited_s >= timeout_s:
                return _not_in_time(seen, timeout_s)
            if seen.missing != told:
                told = seen.missing
                _tell(f"waiting: {told}")
            pause_s = health.pause_s(waited_s, LOOK_EVERY_S)
            time.sleep(max(0.0, min(pause_s, timeout_s - waited_s)))


def look(settings: Settings, url: str | None = None) -> Seen:
    """Ask once."""
    with client(timeout=ASK_TIMEOUT_S) as http:
        return _look(http, settings, url)


def _look(http: httpx.Client, settings: Settings, url: str | None) -> Seen:
    """A service that starts may have another address than its last time."""
    where = url or address(settings)
    try:
        answer = http.get(f"{where.rstrip('/')}/healthz")
        said = answer.json()
        if missing := _missing(answer.status_code, said):
            return Seen(where, "; ".join(missing))
        if (closed := None if url else _closed_port(settings)) is not None:
            return Seen(where, f"the gateway is not listening on port {closed}")
        return Seen(where, told="; ".join(health.warnings(said)))
    except (AnswerRefused, ValueError, LookupError, TypeError, AttributeError):
        return Seen(where, f"{where} is not a Menagerie service (unexpected answer from /healthz)")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Seen(where, f"nothing answers at {where} ({error})")


def _missing(status: int, said: dict[str, Any]) -> list[str]:
    if status == httpx.codes.TOO_MANY_REQUESTS:
        return ["the health of the service was requested too often; trying again"]
    return health.missing(said) if status == httpx.codes.OK else [f"database: {said['detail']}"]


def address(settings: Settings) -> str:
    """Where the API is reached from this machine: as its last start wrote down, or by settings."""
    if settings.base_url or (settings.port and "port" in settings.model_fields_set):
        return settings.api_url_local
    try:
        return str(_endpoints(settings)["base_url"])
    except (OSError, ValueError, LookupError, TypeError):
        return settings.api_url_local


def is_served(settings: Settings) -> bool:
    """Whether a `serve` holds this home."""
    try:
        lock = open_regular(settings.root / "serve.lock")
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _endpoints(settings: Settings) -> Any:
    with os.fdopen(open_regular(endpoints_file(settings.root)), "rb") as file:
        return json.loads(file.read(ENDPOINTS_BYTES_MAX))


def _closed_port(settings: Settings) -> int | None:
    """The gateway's, while it does not listen; None where another machine's is meant."""
    if not is_served(settings):
        return None
    try:
        ports = _endpoints(settings)["gateway_ports"]
        listen = settings.gateway_listen.partition(",")[0].strip()
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen, listen)  # noqa: S104 -- compared
        port = int(ports["https"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    try:
        socket.create_connection((host, port), ASK_TIMEOUT_S).close()
    except OSError:
        return port
    return None


def _not_in_time(seen: Seen, timeout_s: float) -> int:
    _tell(f"not ready after {timeout_s:g} s: {seen.missing}")
    if seen.missing.startswith("nothing answers"):
        _tell("start it with `menagerie serve`, or pass another address with --url")
    return 1


def _tell(text: str) -> None:
    # Whatever answers there must not drive a terminal.
    print(f"menagerie wait: {plain(text)}", file=sys.stderr, flush=True)  # noqa: T201 -- for people
