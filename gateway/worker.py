"""A worker: one process, one loop, one listening socket for each protocol and address."""

import asyncio
import gc
import ipaddress
import os
import signal
import socket
from collections.abc import Callable, Mapping

import structlog
import uvloop

from gateway.activity import Activity, Former
from gateway.certificates import Certificates
from gateway.connection import Connection
from gateway.egress import EgressReports
from gateway.listening import Entry, Listening
from gateway.protocols.interface import GatewayProtocol
from gateway.routes import Routes
from gateway.sent_bytes import SentBytes
from gateway.settings import GatewaySettings
from gateway.shared import Shared
from gateway.slots import Slots
from gateway.wake import Waker

log = structlog.get_logger("gateway.worker")

ACCEPTS_PER_CALL = 64
NO_DESCRIPTORS_PAUSE_S = 0.1
ACTIVITY_S = 1.0
REPORT_S = 10.0
REAP_S = 30.0
BREAKS_S = 1.0
ABANDONED_S = 1.0


class GatewayWorker:
    def __init__(
        self,
        settings: GatewaySettings,
        listeners: list[Listening],
        protocols: Mapping[str, GatewayProtocol],
        slots: Slots,
        former: dict[str, Former],
    ) -> None:
        home = settings.cell_home
        loop = asyncio.get_running_loop()
        self._egress = EgressReports(home / "egress")
        self._sent = SentBytes(home / "sent")
        self._settings = settings
        self._listeners = listeners
        self._protocols = protocols
        self._stopping = asyncio.Event()
        self._loop = loop
        self._said_version: object = None
        self._shared = Shared(
            settings=settings,
            loop=loop,
            routes=Routes(home / "routes.json"),
            certificates=Certificates(home / "pki"),
            slots=slots,
            activity=Activity(home / "activity", former, slots.total, self._egress.ended),
            waker=Waker(home),
            proxies=tuple(
                ipaddress.ip_network(each, strict=False) for each in settings.proxy_cidrs
            ),
        )

    async def run(self, lifeline: int) -> None:
        """Until SIGTERM, SIGINT or the end of the parent; then lets connections finish a while."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stopping.set)
        self._loop.add_reader(lifeline, self._stopping.set)
        self._shared.activity.write()
        # Both are read before the first connection is taken: no host is known without its
        # allow-list.
        self._shared.routes.refresh()
        self._shared.certificates.refresh(self._shared.routes.authorities)
        tasks = [
            self._loop.create_task(self._every(self._settings.poll_s, self._poll)),
            self._loop.create_task(self._every(ACTIVITY_S, self._write_activity)),
            self._loop.create_task(self._every(self._settings.egress_s, self._write_egress)),
            self._loop.create_task(self._every(REPORT_S, self._report)),
            self._loop.create_task(self._every(self._reap_s(), self._reap)),
            self._loop.create_task(self._every(BREAKS_S, self._notice_breaks)),
            self._loop.create_task(self._every(ABANDONED_S, self._tell_abandoned)),
        ]
        for each in self._listeners:
            entry = Entry(self._protocols[each.protocols[0]], each.protocols)
            self._loop.add_reader(each.socket, self._accept, entry, each.socket)
        self._say("gateway.worker_started")
        await self._stopping.wait()
        for each in self._listeners:
            self._loop.remove_reader(each.socket)
            each.socket.close()
        self._loop.remove_reader(lifeline)
        await self._drain()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._shared.waker.stop()
        await self._shared.abandoned.stop()
        await self._shared.login_reports.stop()
        self._report()
        self._shared.activity.write()
        self._write_egress()
        log.info("gateway.worker_stopped")

    def _accept(self, entry: Entry, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_CALL):
            try:
                accepted, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of descriptors: the queue is left alone until some are given back.
                log.warning("gateway.accept_failed", reason=str(error))
                self._loop.remove_reader(listener)
                self._loop.call_later(NO_DESCRIPTORS_PAUSE_S, self._listen_again, entry, listener)
                return
            accepted.setblocking(False)
            self._shared.slots.figures.count("accepted")
            if self._make_room():
                Connection(self._shared, entry, accepted, address[0])
            else:
                self._shared.refused["worker_full"] += 1
                accepted.close()

    def _listen_again(self, entry: Entry, listener: socket.socket) -> None:
        if not self._stopping.is_set():
            self._loop.add_reader(listener, self._accept, entry, listener)

    def _make_room(self) -> bool:
        shared = self._shared
        crowded = len(shared.unproven) >= self._settings.handshakes_max
        full = len(shared.connections) >= self._settings.connections_max
        if (crowded or full) and shared.unproven:
            # Those who have yet to say their address come by a balancer, which says it at once.
            (shared.handshakes.first_to_go() or next(iter(shared.unproven))).close()
            shared.refused["made_room"] += 1
            return True
        return not full

    async def _every(self, interval_s: float, work: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                work()
            except Exception as error:  # noqa: BLE001 - a full disk, say, must not end what serves
                log.warning("gateway.chore_failed", chore=work.__name__, reason=str(error))

    def _poll(self) -> None:
        self._shared.routes.refresh()
        if self._shared.routes.version != self._said_version:
            # Connections, too, read routes.
            self._say("gateway.routes_loaded")
        self._shared.certificates.refresh(self._shared.routes.authorities)
        self._shared.pools.heed_others()
        if self._shared.activity.urgent:
            self._shared.activity.write()

    def _say(self, event: str) -> None:
        routes = self._shared.routes
        self._said_version = routes.version
        log.debug(event, pid=os.getpid(), routes=len(routes), version=routes.version)

    def _write_activity(self) -> None:
        figures = self._shared.slots.figures
        figures.set_level("connections", len(self._shared.connections))
        figures.set_level("handshakes", len(self._shared.unproven))
        self._shared.activity.write()

    def _write_egress(self) -> None:
        self._egress.write(self._shared.activity.open_of)
        self._sent.write(self._shared.activity.totals())

    def _report(self) -> None:
        if self._shared.refused:
            log.info("gateway.refused", **dict(self._shared.refused))
            self._shared.slots.figures.count_all(self._shared.refused)
            self._shared.refused.clear()
        self._shared.activity.forget_all_but(self._shared.routes.instance_ids())

    def _reap_s(self) -> float:
        settings = self._settings
        return min(REAP_S, settings.half_closed_timeout_s / 4, settings.idle_timeout_s / 4)

    def _reap(self) -> None:
        for connection in list(self._shared.connections):
            connection.reap()

    def _notice_breaks(self) -> None:
        for connection in list(self._shared.connections):
            connection.notice_breaks()

    def _tell_abandoned(self) -> None:
        self._shared.abandoned.tell(self._shared.routes.cell_socket)

    async def _drain(self) -> None:
        deadline = self._loop.time() + self._settings.drain_s
        while self._shared.connections:
            for connection in list(self._shared.connections):
                if self._loop.time() >= deadline:
                    connection.close()
                else:
                    connection.close_if_quiet()
            await asyncio.sleep(0.02)


def run(
    settings: GatewaySettings,
    listeners: list[Listening],
    protocols: Mapping[str, GatewayProtocol],
    slots: Slots,
    former: dict[str, Former],
    lifeline: int,
) -> None:
    # What exists now lives as long as the process; the collector need not look at it again.
    gc.freeze()

    async def serve() -> None:
        await GatewayWorker(settings, listeners, protocols, slots, former).run(lifeline)

    uvloop.run(serve())
