"""What all connections of one worker share."""

import asyncio
import collections
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.abandoned import Abandoned
from gateway.activity import Activity
from gateway.addresses import Network
from gateway.certificates import Certificates
from gateway.client_certificates import ClientCertificates
from gateway.draining import Draining
from gateway.login_reports import LoginReports
from gateway.pool_members import FullPools, PoolMembers
from gateway.routes import Routes
from gateway.settings import GatewaySettings
from gateway.slots import Slots
from gateway.wake import Waker

if TYPE_CHECKING:
    from gateway.connection import Connection

# More than a pipe or a TLS record holds, and small enough that a blocked connection stays cheap.
RECEIVE_BYTES = 262_144


@dataclass
class Shared:
    """`unproven` are the connections, oldest first, that have not asked for anything yet.

    `handshakes` are those of them whose address is known; `pools` are the connections after them.
    `waiting` is how many wait until fewer others log in.
    """

    settings: GatewaySettings
    loop: asyncio.AbstractEventLoop
    routes: Routes
    certificates: Certificates
    slots: Slots
    activity: Activity
    waker: Waker
    proxies: tuple[Network, ...]
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(RECEIVE_BYTES)))
    connections: "set[Connection]" = field(default_factory=set)
    unproven: "dict[Connection, None]" = field(default_factory=dict)
    handshakes: PoolMembers = field(default_factory=PoolMembers)
    waiting: int = 0
    refused: collections.Counter[str] = field(default_factory=collections.Counter)
    abandoned: Abandoned = field(init=False)
    login_reports: LoginReports = field(init=False)
    pools: FullPools = field(init=False)
    draining: Draining = field(default_factory=Draining)
    client_certificates: ClientCertificates = field(default_factory=ClientCertificates)

    def __post_init__(self) -> None:
        self.abandoned = Abandoned(self.waker)
        self.login_reports = LoginReports(self.waker)
        self.pools = FullPools(self)
