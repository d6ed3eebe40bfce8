"""Which instance a host names, from the file the cell writes; the last good state is kept."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import structlog

log = structlog.get_logger("gateway.routes")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Route:
    """`networks` None admits every address; `connections_max` None counts nothing."""

    host: str
    instance_id: str | None
    socket: str | None
    protocol: str
    state: str
    networks: tuple[Network, ...] | None
    connections_max: int | None
    refusal: str | None

    @property
    def is_cell(self) -> bool:
        return self.instance_id is None

    @property
    def place(self) -> str:
        """Under which its connections are counted."""
        return self.instance_id or "cell"

    def admits(self, client: str) -> bool:
        if self.networks is None:
            return True
        address = plain_address(client)
        return any(address in network for network in self.networks)


def plain_address(client: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An IPv4 client that reached an IPv6 socket is an IPv4 client."""
    address = ipaddress.ip_address(client.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


class Routes:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._raw: dict[str, Any] = {}
        self._routes: dict[str, Route] = {}
        self.version: object = None
        self.cell_socket = str(path.parent / "run" / "cell.sock")

    def __len__(self) -> int:
        return len(self._routes)

    def find(self, host: str) -> Route | None:
        return self._routes.get(host)

    def instance_ids(self) -> set[str]:
        return {route.instance_id for route in self._routes.values() if route.instance_id}

    def refresh(self) -> bool:
        """True where the file had changed and was read."""
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
            if stamp == self._stamp:
                return False
            document = orjson.loads(self._path.read_bytes())
            if not isinstance(document, dict) or not isinstance(document.get("instances"), dict):
                raise ValueError("no instances in it")  # noqa: TRY004, TRY301 - one kind: "broken"
        except (OSError, ValueError) as error:
            # Missing is how every cell starts; anything else is said once, until it is mended.
            if not isinstance(error, FileNotFoundError) and self._stamp != (0, 0, 0):
                log.warning("gateway.routes_kept", reason=str(error))
                self._stamp = (0, 0, 0)
            return False
        self._stamp = stamp
        self._take(document)
        return True

    def _take(self, document: dict[str, Any]) -> None:
        entries = {host.lower(): entry for host, entry in document["instances"].items()}
        cell = document.get("cell")
        if isinstance(cell, dict) and isinstance(cell.get("host"), str):
            entries[cell["host"].lower()] = {"cell": cell.get("socket")}
            self.cell_socket = str(cell.get("socket") or self.cell_socket)
        routes: dict[str, Route] = {}
        for host, entry in entries.items():
            former = self._routes.get(host)
            if former is not None and self._raw.get(host) == entry:
                routes[host] = former
                continue
            try:
                routes[host] = _route(host, entry)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                # One bad entry must not hold back the changes of all others.
                log.warning("gateway.route_kept", host=host, reason=str(error))
                if former is not None:
                    routes[host] = former
        self._raw, self._routes, self.version = entries, routes, document.get("version")


def _route(host: str, entry: dict[str, Any]) -> Route:
    if "cell" in entry:
        socket = entry["cell"] if isinstance(entry["cell"], str) else None
        return Route(host, None, socket, "https", "running", None, None, None)
    cidrs = entry.get("allow_cidrs")
    networks = (
        None if cidrs is None else tuple(ipaddress.ip_network(c, strict=False) for c in cidrs)
    )
    limit, socket = entry.get("connections_max"), entry.get("socket")
    if not isinstance(socket, str | None):
        raise TypeError("the socket is no path")
    return Route(
        host=host,
        instance_id=str(entry["instance_id"]),
        socket=socket,
        protocol=str(entry.get("protocol", "https")),
        state=str(entry["state"]),
        networks=networks,
        connections_max=None if limit is None else int(limit),
        refusal=entry.get("refusal"),
    )
