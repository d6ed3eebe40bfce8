"""What can be set about the gateway."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gateway import logins, ports


@dataclass(frozen=True)
class GatewaySettings:
    """Port 0 takes a free port; `<cell_home>/run/gateway.json` names the ports in use."""

    cell_home: Path
    # Addresses, comma separated: "127.0.0.1", "0.0.0.0,::".
    listen: str = "127.0.0.1"
    # By protocol; those left out are not served. HTTPS kinds on equal ports share a listener.
    ports: Mapping[str, int] = field(default_factory=ports.DEFAULT.copy)
    workers: int = 1
    # Whether another process of this user holds them, by sockets that say SO_REUSEPORT.
    are_ports_held: bool = False
    # What MySQL's clients are told before it is known which server they want. It should be the
    # lowest version served, since clients choose by it what they ask for; without "MariaDB" in it,
    # what only MariaDB can do is not offered either.
    mysql_version: str = "5.5.5-10.11.0-MariaDB"
    # Networks of load balancers that put a PROXY v2 header before each connection. From them the
    # header is required; from anywhere else it is refused as the nonsense it then is.
    proxy_cidrs: tuple[str, ...] = ()

    # From accept to a finished TLS handshake, and from there to a whole first request.
    handshake_timeout_s: float = 10.0
    first_request_timeout_s: float = 30.0
    # How long a connection waits for a paused instance to wake, or for a crashed one to return.
    wake_hold_s: float = 30.0
    backend_retry_s: float = 5.0
    # A connection whose one side has ended, or which moves no byte at all.
    linger_s: float = 2.0
    half_closed_timeout_s: float = 300.0
    idle_timeout_s: float = 86_400.0
    # A peer that is gone without a word, and one that takes no byte it was sent.
    keepalive_s: int = 60
    stalled_timeout_s: float = 900.0

    # Per worker. Past the second, the oldest unfinished handshake of the address that has most of
    # them makes room for the newest.
    connections_max: int = 8_000
    handshakes_max: int = 1_000
    # To the cell itself, over all workers: who fills it leaves the instances' connections alone.
    cell_connections_max: int = 1_000
    # Shares of one address (IPv6: one /64), so that a crowd from it leaves others served: of the
    # unfinished handshakes of a worker, and of the connections to the cell.
    address_handshakes_max: int = 100
    cell_address_connections_max: int = 50
    # To one instance, before its engine has let the client in: all told, and from one address.
    # Past the first, newcomers wait so long, and no more than so many: a login keeps its place for
    # `login_keep_s` and then makes room for an address that has fewer. Half of the places go to
    # addresses that have logged in before, whoever has them. No size's limit counts them.
    logins_max: int = logins.MAX
    address_logins_max: int = logins.MAX // 2
    login_keep_s: float = 1.5
    login_wait_s: float = 10.0
    logins_waiting_max: int = 500
    login_timeout_s: float = 20.0
    poll_s: float = 0.2
    # How often is told what each connection has sent out, where somebody asks for it.
    egress_s: float = 10.0
    drain_s: float = 5.0

    # None leaves structlog as the caller has set it up.
    log_format: Literal["json", "text"] | None = None
    log_level: str = "info"
