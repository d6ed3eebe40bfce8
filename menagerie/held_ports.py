"""The ports of `menagerie serve`: chosen and held before its parts listen, and while none does."""

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import structlog

from menagerie.errors import SettingsError
from menagerie.settings import Settings

_LOG = structlog.get_logger(__name__)
_ENDED_S: Final = 65.0
"""The system remembers ended connections for 60."""


@contextmanager
def ports_held(settings: Settings) -> Iterator[Settings]:
    """Pick a port where 0 is asked for; refuse with the option's name where one is taken.

    All stay bound, with nobody listening, until the end. So nobody else listens there before the
    part does, seconds later, nor while one that was killed is started anew.
    """
    first, *others = (each.strip() for each in settings.gateway_listen.split(","))
    with ExitStack() as stack:

        def hold(address: str, port: int, option: str) -> int:
            return stack.enter_context(port_held(address, port, option, _ENDED_S))

        host, *more = _addresses(settings.host)
        chosen = {"port": hold(host, settings.port, "--port")}
        for each in more:
            hold(each, chosen["port"], "--port")
        sharing: dict[int, int] = {0: 0}
        for protocol, port in settings.gateway_ports.items():
            name = f"gateway_{protocol}_port"
            if not sharing.get(port):
                option = f"--{name.replace('_', '-')}"
                found = sharing[port] = hold(first, port, option)
                for each in others:
                    hold(each, found, option)
            chosen[name] = sharing[port]
            sharing[0] = 0  # each that asks for any free port gets one of its own
        yield settings.model_copy(update=chosen)


def _addresses(host: str) -> list[str]:
    """All that the API binds, as of `localhost`; a name that is unknown is refused later."""
    flags = socket.AI_PASSIVE
    try:
        found = socket.getaddrinfo(host or None, None, type=socket.SOCK_STREAM, flags=flags)
    except OSError:
        return [host]
    return list(dict.fromkeys(str(each[4][0]) for each in found))


@contextmanager
def port_held(address: str, port: int, option: str, patient_s: float = 0.0) -> Iterator[int]:
    """Bound so that only sockets of this user that say SO_REUSEPORT can listen on it.

    With SO_REUSEADDR any user's could, wherever none listens yet.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            if port:
                _check_unshared(family, address, port)
            _bind(probe, address, port, patient_s if port else 0.0)
        except OSError as error:
            # Said as the system says it, without what Python adds.
            why = str(error.strerror).partition(" (while")[0]
            help_ = f"choose another with {option}"
            if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                setting = "host" if option == "--port" else "gateway_listen"
                help_ = f"set {setting} to an address of this machine"
            raise SettingsError(
                f"cannot listen on {address} port {port}: {why}; {help_}"
            ) from error
        yield int(probe.getsockname()[1])


def _check_unshared(family: int, address: str, port: int) -> None:
    """Raises OSError where another service of this user has it, which would share it."""
    with socket.socket(family, socket.SOCK_STREAM) as alone:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            alone.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        alone.bind((address, port))


def _bind(probe: socket.socket, address: str, port: int, patient_s: float) -> None:
    """Ended connections of a server that did not say SO_REUSEPORT keep a port for a minute."""
    give_up_at = time.monotonic() + patient_s
    told = False
    while True:
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= give_up_at:
                raise
        else:
            return
        if not told:
            _LOG.info("waiting for a port whose connections have just ended", port=port)
            told = True
        time.sleep(0.2)
