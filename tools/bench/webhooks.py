"""Owns the benchmark of webhooks: deliveries beside bare requests, and what publishing costs.

Both are measured in turns, so that other load on the machine cancels out of the ratios. The bare
loop is httpx's client with as many requests at a time as a deliverer has lanes, over HTTP, to the
same receiver, which is another process.
"""

import asyncio
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import httpx
import structlog
from rich.console import Console
from rich.table import Table
from sqlalchemy import func, select

from contract_tests.databases import DIALECTS, Databases
from contract_tests.delivery.outbox import Outbox
from storage.events.webhook_deliveries import WebhookDelivery

ROUNDS: Final = 3
LANES: Final = 10
EVENTS: Final = 200
PUBLISHED: Final = 300
DELIVERED_MIN: Final = 0.7
"""Deliveries a second, of the bare requests."""
PUBLISHED_MAX: Final = 1.10
"""CPU of publishing with ten endpoints, in times of that with none."""
RECEIVER: Final = """
import asyncio, sys
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"
async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\\r\\n")[0])
            await reader.readexactly(length)
            writer.write(ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


async def _bare(url: str) -> float:
    """Requests a second, each of a lane after the one before."""
    body = b'{"id":"evt_01M8NQBE5BE1K3ZM79M18KSBNA","type":"org.member.removed.v1","data":{}}'
    async with httpx.AsyncClient() as client:

        async def lane() -> None:
            for _ in range(EVENTS):
                (await client.post(url, content=body)).raise_for_status()

        begun = time.perf_counter()
        await asyncio.gather(*(lane() for _ in range(LANES)))
        return LANES * EVENTS / (time.perf_counter() - begun)


def _delivered(outbox: Outbox, before: int) -> float:
    """Deliveries a second, recorded, of events that were there before the deliverer."""
    outbox.publish_many(EVENTS)
    begun = time.perf_counter()
    deliverer = outbox.deliver()
    rows = select(func.count()).select_from(WebhookDelivery)
    while True:
        with outbox.database.read() as db:
            if (db.scalar(rows) or 0) >= before + LANES * EVENTS:
                break
        time.sleep(0.01)
    taken = time.perf_counter() - begun
    outbox.stop(deliverer)
    return LANES * EVENTS / taken


def _publishing(outbox: Outbox) -> float:
    begun = time.process_time()
    outbox.publish(PUBLISHED)
    return (time.process_time() - begun) / PUBLISHED


def _measure(url: str, hook: str, folder: Path) -> dict[str, float]:
    none, ten = Outbox(url, folder / "none.db"), Outbox(url, folder / "ten.db")
    for _ in range(LANES):
        ten.endpoint(hook)
    _publishing(none), _publishing(ten)
    costs = [(_publishing(ten), _publishing(none)) for _ in range(ROUNDS)]
    none.close()
    # What was published for that is delivered first.
    drained = LANES * (ROUNDS + 1) * PUBLISHED
    _drain(ten, drained)
    rates = [
        (_delivered(ten, drained + turn * LANES * EVENTS), asyncio.run(_bare(hook)))
        for turn in range(ROUNDS)
    ]
    ten.close()
    return {
        "deliveries": statistics.median(one for one, _ in rates),
        "bare": statistics.median(one for _, one in rates),
        "rate": statistics.median(one / other for one, other in rates),
        "cost": statistics.median(one / other for one, other in costs),
    }


def _drain(outbox: Outbox, count: int) -> None:
    deliverer = outbox.deliver()
    rows = select(func.count()).select_from(WebhookDelivery)
    found: Any = 0
    while found < count:
        time.sleep(0.05)
        with outbox.database.read() as db:
            found = db.scalar(rows) or 0
    outbox.stop(deliverer)


def main() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    receiver = subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    hook = f"http://127.0.0.1:{int(receiver.stdout.readline())}/hook"
    table = Table("", "deliveries/s", "bare requests/s", "ratio", "CPU of publishing")
    found = []
    try:
        with tempfile.TemporaryDirectory(prefix="menagerie-bench-") as directory:
            folder = Path(directory)
            folder.chmod(0o755)
            databases = Databases()
            try:
                for dialect in DIALECTS:
                    one = _measure(databases.migrated(dialect), hook, folder)
                    found.append(one)
                    figures = (f"{one[name]:,.0f}" for name in ("deliveries", "bare"))
                    ratios = (f"{one[name]:.2f}" for name in ("rate", "cost"))
                    table.add_row(dialect, *figures, *ratios)
            finally:
                databases.close()
    finally:
        receiver.kill()
        receiver.wait()
    console = Console()
    console.print(table)
    console.print(
        f"ratio: at least {DELIVERED_MIN}; CPU of publishing with ten endpoints, in times"
    )
    console.print(f"of that with none: at most {PUBLISHED_MAX}")
    kept = all(one["rate"] >= DELIVERED_MIN and one["cost"] <= PUBLISHED_MAX for one in found)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
