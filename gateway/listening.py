"""The ports: which protocols each serves, and how they are taken."""

import socket
import time
from dataclasses import dataclass

from gateway.protocols.interface import GatewayProtocol
from gateway.settings import GatewaySettings

BACKLOG = 1_024
BIND_FOR_S = 3.0
# Served by one protocol, told apart by host: only these can share a port.
SHARING = frozenset({"https", "clickhouse_https"})


class PortError(OSError):
    """A port cannot be had; the text names the setting it came from."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a connection knows of the port it came in by."""

    protocol: GatewayProtocol
    protocols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listening:
    protocols: tuple[str, ...]
    socket: socket.socket


def listen(settings: GatewaySettings, spoken: frozenset[str]) -> list[list[Listening]]:
    """For each worker its own socket on every address, for each port of what is spoken."""
    workers: list[list[Listening]] = [[] for _ in range(settings.workers)]
    try:
        for protocols in _by_port(settings, spoken):
            _listen_for(settings, protocols, workers)
    except OSError:
        for listening in workers:
            for each in listening:
                each.socket.close()
        raise
    return workers


def _by_port(settings: GatewaySettings, spoken: frozenset[str]) -> list[tuple[str, ...]]:
    """The protocols of each port; any number of them may ask for a free one."""
    ports: dict[int, list[str]] = {}
    alone: list[tuple[str, ...]] = []
    for protocol, port in settings.ports.items():
        if protocol not in spoken:
            continue
        if port == 0:
            alone.append((protocol,))
        else:
            ports.setdefault(port, []).append(protocol)
    for port, protocols in ports.items():
        if len(protocols) > 1 and not SHARING.issuperset(protocols):
            names = " and ".join(f"gateway_{each}_port" for each in protocols)
            raise PortError(f"{names} are both {port}; give each a port of its own")
    return alone + [tuple(protocols) for protocols in ports.values()]


def _listen_for(
    settings: GatewaySettings, protocols: tuple[str, ...], workers: list[list[Listening]]
) -> None:
    port = settings.ports[protocols[0]]
    for address in (each.strip() for each in settings.listen.split(",")):
        # Sharing a port is meant for our own workers. Bound alone first, a port that another
        # gateway has is an error, and not half of the clients in the wrong cell.
        try:
            first = _bind(settings, address, port, shared=settings.are_ports_held)
            port = first.getsockname()[1]
            if settings.workers == 1:
                workers[0].append(Listening(protocols, first))
                continue
            first.close()
            for listening in workers:
                listening.append(Listening(protocols, _bind(settings, address, port, shared=True)))
        except OSError as error:
            text = f"cannot listen on {address}:{port}: {error.strerror}"
            raise PortError(f"{text} (gateway_{protocols[0]}_port)") from error


def _bind(settings: GatewaySettings, address: str, port: int, *, shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    # What a connection inherits: answers go out at once, and peers that are gone, or that take
    # nothing they are sent, are noticed by the kernel.
    for option, value in (
        (socket.TCP_NODELAY, 1),
        (socket.TCP_KEEPIDLE, settings.keepalive_s),
        (socket.TCP_KEEPINTVL, max(1, settings.keepalive_s // 4)),
        (socket.TCP_KEEPCNT, 4),
        (socket.TCP_USER_TIMEOUT, int(settings.stalled_timeout_s * 1000)),
    ):
        listener.setsockopt(socket.IPPROTO_TCP, option, value)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    give_up_at = time.monotonic() + BIND_FOR_S
    while True:
        try:
            listener.bind((address, port))
            listener.listen(BACKLOG)
        except OSError:
            # The workers of a killed gateway take a moment to let go.
            if time.monotonic() >= give_up_at:
                listener.close()
                raise
            time.sleep(0.05)
        else:
            return listener
