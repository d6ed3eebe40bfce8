"""The relay of messages as they usually are, in as few steps as that needs.

Each direction is one function that the loop calls. It sees only what is usual: a socket that has
bytes, whole records, a peer that takes them. All else it leaves to `Stream` and `Relay`. Calls of
functions are most of what Python adds to a message, so there are as few of them as there can be.
"""

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.tls_session import CHUNK_BYTES

if TYPE_CHECKING:
    from gateway.relay import Relay
    from gateway.stream import Stream

# With more than this, gathering records into one call saves more than the steps cost.
SMALL_BYTES = 16_384


def from_client(  # noqa: C901 - in one function, as said above
    relay: "Relay", client: "Stream", backend: "Stream"
) -> Callable[[], None]:
    session, traffic, buffer = relay.session, relay.traffic, client.buffer
    receive_into, send = client.receive_into, backend.send
    encrypted, answers, decrypt = session.incoming, session.outgoing, session.decrypt
    take = encrypted.write

    def read() -> None:
        try:
            count = receive_into(buffer)
        except OSError as error:
            client.cannot_read(error)
            return
        if not 0 < count <= SMALL_BYTES:
            client.has_read(count)
            return
        try:
            take(buffer[:count])
            relay.moved = relay.asked_last = True
            while encrypted.pending:
                message = decrypt(CHUNK_BYTES)
                if not message:
                    session.peer_ended = True
                    break
                traffic.bytes_in += len(message)
                send(message)
        except ssl.SSLWantReadError:
            pass  # the rest of a record has not arrived
        except ssl.SSLZeroReturnError:
            session.peer_ended = True
        except Exception as error:  # noqa: BLE001 - the relay ends by it, whatever it is
            relay.broken_by(error)
            return
        if answers.pending:
            relay.flush()
        if session.peer_ended:
            relay.received(client, buffer[:0])

    return read


def from_backend(relay: "Relay", backend: "Stream", client: "Stream") -> Callable[[], None]:
    session, traffic, buffer = relay.session, relay.traffic, backend.buffer
    receive_into, send = backend.receive_into, client.send
    encrypt, output = session.encrypt, session.outgoing.read

    def read() -> None:
        try:
            count = receive_into(buffer)
        except OSError as error:
            backend.cannot_read(error)
            return
        if not count:
            backend.has_read(0)
            return
        try:
            relay.moved = True
            relay.asked_last = False
            traffic.bytes_out += count
            encrypt(buffer[:count])
            send(output())
        except Exception as error:  # noqa: BLE001 - as above
            relay.broken_by(error)

    return read
