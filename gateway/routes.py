"""Which instance a host names, from the file the cell writes; the last good state is kept."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import structlog

from gateway import addresses
from gateway.addresses import Network
from gateway.protocols.postgres_login import Logins, ScramVerifier

log = structlog.get_logger("gateway.routes")

GRPC_SUFFIX = "-grpc"


@dataclass(frozen=True, slots=True)
class Route:
    """Where a host leads by one protocol.

    `networks` None admits every address; `connections_max` None counts nothing; `alpn` None is
    what the protocol has; `client_ca_pem` None asks clients for no certificate; `tenant` is whose
    the instance is, in a word that says no more; `sends_proxy_header` tells the backend who calls;
    `logins` are those of which more is known than their names.
    """

    host: str
    instance_id: str | None
    socket: str | None
    protocol: str
    state: str
    networks: tuple[Network, ...] | None
    connections_max: int | None
    refusal: str | None
    client_ca_pem: str | None = None
    alpn: tuple[str, ...] | None = None
    sends_proxy_header: bool = False
    tenant: str = ""
    logins: Logins = field(default_factory=dict, hash=False)

    @property
    def is_cell(self) -> bool:
        return self.instance_id is None

    @property
    def counted_as(self) -> str:
        """Under which its connections are counted."""
        return self.instance_id or "cell"

    def admits(self, client: str) -> bool:
        return addresses.admits(self.networks, client)


class Routes:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._raw: dict[str, Any] = {}
        self._made: dict[str, list[Route]] = {}
        self._routes: dict[tuple[str, str], Route] = {}
        self._by_instance: dict[tuple[str, str], Route] = {}
        self._zone = ""
        self.authorities: frozenset[str] = frozenset()
        """All bundles whose certificates any host asks for."""
        self.version: object = None
        self.cell_socket = str(path.parent / "run" / "cell.sock")

    def __len__(self) -> int:
        return len(self._made)

    def find(self, host: str, protocols: tuple[str, ...]) -> Route | None:
        """Where a host leads by one of these protocols."""
        for protocol in protocols:
            route = self._routes.get((host, protocol))
            if route is not None:
                return route
        return None

    def named(self, name: str, protocols: tuple[str, ...]) -> Route | None:
        """As `find`, also by the first label of a host alone."""
        name = name.lower()
        return self.find(name if "." in name else f"{name}.{self._zone}", protocols)

    def of_instance(self, instance_id: str, protocols: tuple[str, ...]) -> Route | None:
        for protocol in protocols:
            route = self._by_instance.get((instance_id, protocol))
            if route is not None:
                return route
        return None

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
                raise ValueError("it contains no instances")  # noqa: TRY004, TRY301 - one kind: "broken"
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
            entries[cell["host"].lower()] = {
                "cell": cell.get("socket"),
                "sends_proxy_header": cell.get("proxy_header") is True,
            }
            self._zone = cell["host"].lower().partition(".")[2]
            self.cell_socket = str(cell.get("socket") or self.cell_socket)
        made: dict[str, list[Route]] = {}
        for host, entry in entries.items():
            former = self._made.get(host)
            if former is not None and self._raw.get(host) == entry:
                made[host] = former
                continue
            try:
                made[host] = _routes(host, entry)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                # One bad entry must not hold back the changes of all others.
                log.warning("gateway.route_kept", host=host, reason=str(error))
                if former is not None:
                    made[host] = former
        self._raw, self._made, self.version = entries, made, document.get("version")
        ranked = _by_rank(made)
        self._routes = {(route.host, route.protocol): route for route in ranked}
        self._by_instance = {(route.counted_as, route.protocol): route for route in ranked}
        self.authorities = frozenset(each.client_ca_pem for each in ranked if each.client_ca_pem)


def _by_rank(made: dict[str, list[Route]]) -> list[Route]:
    """Own hosts last: no domain of one instance takes the host of another, or of the cell."""
    every = [(host, route) for host, routes in made.items() for route in routes]
    every.sort(key=lambda each: each[0] == each[1].host)
    return [route for _, route in every]


def _routes(host: str, entry: dict[str, Any]) -> list[Route]:
    """All that one entry says: the host itself, further hosts, and further protocols."""
    if "cell" in entry:
        socket = entry["cell"] if isinstance(entry["cell"], str) else None
        sends_proxy_header = entry.get("sends_proxy_header") is True
        return [
            Route(
                host,
                None,
                socket,
                "https",
                "running",
                None,
                None,
                None,
                sends_proxy_header=sends_proxy_header,
            )
        ]
    main = _route(host, entry)
    hosts = [host, *(str(domain).lower() for domain in entry.get("domains") or ())]
    routes = [replace(main, host=each) for each in hosts]
    if entry.get("https_socket"):
        further = replace(
            main, protocol=f"{main.protocol}_https", socket=_path(entry, "https_socket")
        )
        routes += [replace(further, host=each) for each in hosts]
    if entry.get("grpc_socket"):
        label, _, zone = host.partition(".")
        socket = _path(entry, "grpc_socket")
        name = f"{label}{GRPC_SUFFIX}.{zone}"
        routes.append(replace(main, host=name, socket=socket, alpn=("h2",)))
    return routes


def _route(host: str, entry: dict[str, Any]) -> Route:
    limit = entry.get("connections_max")
    networks, authorities = _rules(host, entry)
    return Route(
        host=host,
        instance_id=str(entry["instance_id"]),
        socket=_path(entry, "socket"),
        protocol=str(entry.get("protocol", "https")),
        state=str(entry["state"]),
        networks=networks,
        connections_max=None if limit is None else int(limit),
        refusal=entry.get("refusal"),
        client_ca_pem=authorities,
        # As in the cell, an instance without one is a tenant of its own.
        tenant=str(entry.get("tenant") or entry["instance_id"]),
        logins={
            name.encode(): ScramVerifier.parse(proof)
            for name, proof in (entry.get("logins") or {}).items()
        },
    )


def _rules(host: str, entry: dict[str, Any]) -> tuple[tuple[Network, ...] | None, str | None]:
    """Who may connect. Nobody, where it cannot be read: the former rule may have let in more."""
    authorities = entry.get("client_ca_pem")
    try:
        if not isinstance(authorities, str | None):
            raise TypeError("the client CAs are not PEM")  # noqa: TRY301 - one kind: "unreadable"
        return addresses.parse_networks(entry.get("allow_cidrs")), authorities
    except (TypeError, ValueError) as error:
        log.error("gateway.rule_unreadable", host=host, reason=str(error))  # noqa: TRY400
        return (), None


def _path(entry: dict[str, Any], name: str) -> str | None:
    path = entry.get(name)
    if not isinstance(path, str | None):
        raise TypeError(f"the {name} is not a path")
    return path
