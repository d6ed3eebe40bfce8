"""Owns the benchmark of specserver: CPU per request, beside others that do the same work.

Requests go straight into the ASGI app, with no sockets. Rounds of all apps are interleaved and
medians taken, so that other load on the machine cancels out of the ratios.
"""

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson
from rich.console import Console
from rich.table import Table

from tools.bench import specserver_apps as apps

OPERATIONS = 170
MANY, FEW = 500, 10
ROUNDS = 15
REQUESTS = 300
_BODY = orjson.dumps(apps.BODY)


class Bar(NamedTuple):
    """A promise: the first app costs at most `limit` times the second."""

    of: str
    against: str
    limit: float


BARS = (
    Bar("specserver", "raw Starlette + orjson", 2.5),
    Bar("specserver", "FastAPI", 0.3),
    Bar("specserver", "stock Connexion", 0.3),
    Bar("specserver, 500 operations", "specserver, 10 operations", 1.1),
)


def scope_of(number: int) -> dict[str, Any]:
    path = apps.path_of(number, "org_01JD0000000000000000000000")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"limit=25",
        "root_path": "",
        "headers": [
            (b"host", b"127.0.0.1:8080"),
            (b"user-agent", b"benchmark/1"),
            (b"accept", b"*/*"),
            (b"accept-encoding", b"gzip, deflate"),
            (b"connection", b"keep-alive"),
            (b"authorization", b"Bearer " + apps.TOKEN.encode()),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(_BODY)),
        ],
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 40000),
    }


async def request(app: Any, scope: dict[str, Any]) -> tuple[int, bytes]:
    """One request as a server would make it; the status and the body of the answer."""
    events = [{"type": "http.request", "body": _BODY, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return events.pop() if events else {"type": "http.disconnect"}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    await app({**scope, "headers": list(scope["headers"])}, receive, send)
    return sent[0]["status"], b"".join(event.get("body", b"") for event in sent[1:])


class Contender:
    """An app under measurement, and the CPU it took per request, round by round."""

    def __init__(self, build: Callable[..., Any], operations: int, *, threaded: bool) -> None:
        self.app = build(operations, threaded=threaded)
        # As many for each app, so that none has the requests themselves in the CPU's cache.
        self.scopes = [scope_of(number % operations) for number in range(MANY)]
        self.rounds_us: list[float] = []
        self._at = 0

    async def check(self) -> None:
        status, body = await request(self.app, self.scopes[0])
        expected = apps.answer("org_01JD0000000000000000000000", 25, apps.BODY)
        if status != 200 or orjson.loads(body) != expected:  # noqa: PLR2004 - OK
            raise AssertionError(f"answered {status}: {body[:200]!r}")

    async def measure(self, requests: int) -> None:
        scopes = self.scopes
        started = time.process_time()
        for _ in range(requests):
            self._at = (self._at + 1) % len(scopes)
            await request(self.app, scopes[self._at])
        self.rounds_us.append((time.process_time() - started) / requests * 1e6)

    @property
    def median_us(self) -> float:
        return statistics.median(self.rounds_us)


async def measure(contenders: dict[str, Contender], rounds: int, requests: int) -> None:
    for contender in contenders.values():
        await contender.check()
        await contender.measure(requests)
        contender.rounds_us.clear()
    gc.collect()
    gc.freeze()
    order = list(contenders.values())
    for _ in range(rounds):
        for contender in order:
            await contender.measure(requests)
        order.append(order.pop(0))
    gc.unfreeze()


def _ratio(of: Contender, against: Contender) -> float:
    """Of the same rounds, the median: a machine that slows down in some slows both down."""
    pairs = zip(of.rounds_us, against.rounds_us, strict=True)
    return statistics.median(one / other for one, other in pairs)


def run(rounds: int = ROUNDS, requests: int = REQUESTS) -> dict[str, Any]:
    """CPU in µs per request by app, and each bar with what was measured."""
    on_loop = {
        "raw Starlette + orjson": Contender(apps.raw, OPERATIONS, threaded=False),
        "specserver": Contender(apps.specserver, OPERATIONS, threaded=False),
        "FastAPI": Contender(apps.fastapi, OPERATIONS, threaded=False),
        "stock Connexion": Contender(apps.stock_connexion, OPERATIONS, threaded=False),
        "specserver, 10 operations": Contender(apps.specserver, FEW, threaded=False),
        "specserver, 500 operations": Contender(apps.specserver, MANY, threaded=False),
    }
    on_threads = {
        "specserver, on threads": Contender(apps.specserver, OPERATIONS, threaded=True),
        "FastAPI, on threads": Contender(apps.fastapi, OPERATIONS, threaded=True),
        "stock Connexion, on threads": Contender(apps.stock_connexion, OPERATIONS, threaded=True),
    }
    contenders = on_loop | on_threads
    asyncio.run(measure(contenders, rounds, requests))
    cpu_us = {name: contender.median_us for name, contender in contenders.items()}
    ratios = [_ratio(contenders[bar.of], contenders[bar.against]) for bar in BARS]
    return {
        "cpu_us": cpu_us,
        "bars": [bar._asdict() | {"ratio": r} for bar, r in zip(BARS, ratios, strict=True)],
        "kept": all(r <= bar.limit for bar, r in zip(BARS, ratios, strict=True)),
    }


def show(result: dict[str, Any]) -> None:
    console = Console()
    base = result["cpu_us"]["raw Starlette + orjson"]
    table = Table(title=f"CPU per request, {OPERATIONS} operations unless stated otherwise")
    table.add_column("app")
    table.add_column("µs", justify="right")
    table.add_column("x raw", justify="right")
    for name, cpu_us in result["cpu_us"].items():
        table.add_row(name, f"{cpu_us:.1f}", f"{cpu_us / base:.2f}")
    console.print(table)
    bars = Table(title="Limits")
    for column in ("ratio", "at most", "measured", ""):
        bars.add_column(column, justify="left" if column == "ratio" else "right")
    for bar in result["bars"]:
        kept = "pass" if bar["ratio"] <= bar["limit"] else "FAIL"
        what = f"{bar['of']} / {bar['against']}"
        bars.add_row(what, f"{bar['limit']:.2f}", f"{bar['ratio']:.2f}", kept)
    console.print(bars)
    console.print(
        "Every app checks a bearer token, reads a path and a query parameter and parses the body "
        "with the same result. Raw Starlette compares the token and parses the body with orjson, "
        "and validates nothing; the others validate the body against one schema with six members, "
        "which all operations share."
    )


if __name__ == "__main__":
    outcome = run()
    show(outcome)
    sys.exit(0 if outcome["kept"] else 1)
