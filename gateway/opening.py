"""Finding the backend of a connection: at once where it runs, else by waking or waiting."""

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable

from gateway import proxy_header, sockets
from gateway.protocols.postgres_login import Logins
from gateway.refusal import Refusal
from gateway.routes import Route
from gateway.shared import Shared

WAKES = frozenset({"idle", "starting"})
SERVED = WAKES | {"running"}
LOOK_AGAIN_S = 0.05
# As often as that only while few wait, so that a crowd which waits takes little of the worker.
LOOKS_AT_A_TIME = 25
CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def is_served(route: Route | None) -> bool:
    return route is not None and route.state in SERVED


def check(route: Route | None) -> Route:
    """Raises the refusal of a host that is not to be served now."""
    if route is None:
        raise Refusal("unknown", "the instance has been deleted")
    if route.state not in SERVED:
        raise Refusal("paused", route.refusal or f"the instance is {route.state}")
    return route


def check_admitted(route: Route, address: str, asked_for: str | None) -> None:
    """Raises where the rules have changed since TLS, which asked for certificates of `asked_for`.

    Where all of those authorities were kept, a certificate is as good as it was then.
    """
    if not route.admits(address):
        raise Refusal("not_permitted", "this address is not on the instance's allow-list")
    wanted = route.client_ca_pem
    if wanted is None or asked_for == wanted:
        return
    if asked_for is None or not _authorities(asked_for) <= _authorities(wanted):
        text = "the client certificates that this instance requires have changed: connect again"
        raise Refusal("not_permitted", text)


def _authorities(bundle: str) -> set[str]:
    return set(CERTIFICATE.findall(bundle))


def connect(path: str | None) -> socket.socket:
    """A unix socket connects at once or not at all."""
    if path is None:
        raise FileNotFoundError("the route names no socket")
    return sockets.connect(path, 0)


async def wait_for_place(shared: Shared, enter: Callable[[], bool], placed: asyncio.Event) -> None:
    """Until fewer others are logging in, which takes most of them no time.

    `placed` tells whoever is given a place between two looks, which nobody else has meanwhile.
    """
    give_up_at = shared.loop.time() + shared.settings.login_wait_s
    shared.waiting += 1
    try:
        while not enter():
            if shared.loop.time() >= give_up_at:
                text = "too many connections: too many are still logging in"
                raise Refusal("too_many_connections", text, 1)
            look_again_s = LOOK_AGAIN_S * max(1.0, shared.waiting / LOOKS_AT_A_TIME)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(placed.wait(), look_again_s)
    finally:
        shared.waiting -= 1


async def wait_for_backend(
    shared: Shared,
    host: str,
    protocols: tuple[str, ...],
    enter: Callable[[], bool],
    placed: asyncio.Event,
) -> socket.socket:
    """Holds a connection while its instance wakes, or while a crashed engine is restarted.

    Nothing is connected to before `enter` has found a place: the engine would count it.
    """
    settings, now = shared.settings, shared.loop.time
    deadline = now() + settings.wake_hold_s
    give_up_at = now() + settings.backend_retry_s
    woken_until = now()
    while True:
        shared.routes.refresh()
        route = check(shared.routes.find(host, protocols))
        if route.state in WAKES and route.instance_id is not None and now() >= woken_until:
            hold_s = max(0.0, deadline - now())
            await shared.waker.wake(route.instance_id, shared.routes.cell_socket, hold_s)
            # The routes say so a little later than the cell itself.
            woken_until = now() + settings.backend_retry_s
            give_up_at = min(deadline, woken_until)
        await wait_for_place(shared, enter, placed)
        try:
            return connect(route.socket)
        except OSError:
            if now() >= give_up_at:
                raise Refusal("unreachable", "the instance is not responding", 1) from None
        await asyncio.sleep(LOOK_AGAIN_S)


def logins(shared: Shared, entered: Route | None, protocols: tuple[str, ...]) -> Logins:
    """Those of the instance as they are now: one may be new since the routes were last read."""
    if entered is None or entered.instance_id is None:
        return {}
    shared.routes.refresh()
    return check(shared.routes.of_instance(entered.instance_id, protocols)).logins


def announcement(shared: Shared, client: str) -> bytes:
    """Who calls, said before all that the client says, to a backend that is connected already.

    So the token is that of the cell that listens, and a client cannot be the first to say it.
    """
    token = ""
    with contextlib.suppress(OSError):  # then the cell knows no address, and admits fewer
        token = shared.waker.token()
    return proxy_header.build(client, token.encode())


async def deliver(shared: Shared, path: str | None, message: bytes) -> None:
    """Says one thing to a backend and waits, not for long, until it hangs up."""
    with contextlib.suppress(OSError, TimeoutError), connect(path) as backend:
        async with asyncio.timeout(shared.settings.backend_retry_s):
            await shared.loop.sock_sendall(backend, message)
            while await shared.loop.sock_recv(backend, 1_024):
                pass
