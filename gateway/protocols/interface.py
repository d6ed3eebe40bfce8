"""What the gateway asks of each protocol, and of its part in a connection: the dialogue.

Bytes only: neither waits nor knows sockets. docs/gateway.md says when what is called.
"""

from dataclasses import dataclass
from typing import Final, Literal, Protocol

from gateway.protocols.postgres_login import Logins
from gateway.refusal import Refusal


@dataclass(frozen=True, slots=True)
class PlainReply:
    """Said in plaintext before TLS; the dialogue is asked again for what follows."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Rejected:
    """`answer` is said first, if there is one; it is meant to be read where `linger`."""

    reason: str
    answer: bytes = b""
    linger: bool = False


@dataclass(frozen=True, slots=True)
class SideRequest:
    """One message for the backend of an instance, which answers by hanging up."""

    instance_id: str
    message: bytes


@dataclass(frozen=True, slots=True)
class FirstRequest:
    """The client has asked for something.

    `name` is the instance it named in its own protocol: a host, or the first label of one. Where
    TLS has told the host already and no instance has that name, it may mean something else:
    `otherwise` is what was asked for then.
    """

    first: bytes
    name: str | None = None
    otherwise: bytes | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What to say next to whom; from `spliced` on, bytes pass unseen and at no cost.

    `spliced` also tells that the engine has let the client in, which then takes a place among its
    connections. Where there is none it is refused, unless what it asked for is `done` already.
    `of_owners_role` is a login by a role that the owner made, and so no credential of the cell's.
    `unsure` is an answer that may also be to a goodbye, and the engine will hang up in a moment.
    `session` is its number at an engine that does not notice when a client goes. `suspect` is a
    login of the cell's that the engine does not accept: it may have been changed.
    """

    to_client: bytes = b""
    to_backend: bytes = b""
    spliced: bool = False
    done: bool = False
    of_owners_role: bool = False
    unsure: bool = False
    session: int | None = None
    suspect: bool = False


TLS: Final = "tls"


class Dialogue(Protocol):
    """One connection's part of the protocol. Any method may raise Refusal once TLS is there."""

    @property
    def greeting(self) -> bytes:
        """Said before the client says anything."""

    @property
    def needs_alpn(self) -> bool:
        """Whether a client must name the protocol in its ClientHello; asked when that is there."""

    @property
    def names_instances(self) -> bool:
        """Whether `begin` can tell where to lead a client that gave TLS no server name."""

    @property
    def logs_in(self) -> bool:
        """Whether a client that says nothing is hung up on before it is answered, too."""

    @property
    def must_answer(self) -> bool:
        """Whether the engine asks a client for something before it lets it in.

        So one that has said its last waits in vain.
        """

    @property
    def evictable(self) -> bool:
        """Whether a client that has yet to log in may be hung up on for another that would.

        Not one whose whole request the engine is at work on.
        """

    def before_tls(
        self, received: bytearray
    ) -> Literal["tls"] | PlainReply | Rejected | SideRequest | None:
        """Takes what it understands off the beginning of `received`.

        `TLS` where what is left is the beginning of a ClientHello; None while bytes are missing.
        """

    def tls_agreed(self, protocol: str | None) -> None:
        """Told before `begin`: what TLS agreed on, None where the client named no protocol."""

    def begin(self, received: bytearray) -> FirstRequest | SideRequest | None:
        """Whether what has come through TLS so far is a request, and not a mere probe.

        None while more is needed; it must bound what it waits for.
        """

    def opened(self, first: bytes, instance_id: str | None, logins: Logins) -> Step:
        """The backend is connected; `first` is that of `begin`.

        `logins` are those that the cell made, whose passwords nobody else may change.
        """

    def from_client(self, data: bytes) -> Step:
        """What arrived before a turn was `spliced`, and so with the backend."""

    def from_backend(self, data: bytes) -> Step: ...

    def refusal(self, refusal: Refusal, *, problem: bool) -> bytes:
        """`problem` asks for the shape of the cell's own API instead of the engines'."""

    def closed(self) -> None:
        """The connection is over; may be called more than once."""


class GatewayProtocol(Protocol):
    """One for each protocol and worker."""

    @property
    def alpn(self) -> tuple[str, ...]:
        """What TLS agrees on; empty where the protocol knows no such name."""

    def dialogue(self) -> Dialogue: ...
