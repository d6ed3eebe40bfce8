"""The socket that leads to an instance: it carries what it is given, and ends in silence."""

import gc
import logging
import socket
from pathlib import Path

import pytest

from clients.credentials import Credential
from clients.transport import Authorities
from clients.tunnel import PORT, PostgresTunnel
from contract_tests.clients.stand_in import ControlPlane

ASKED = "GET /v1/logs/{} HTTP/1.1\r\nHost: cell.local.localhost\r\n\r\n"


def connected(tunnel: PostgresTunnel, number: int) -> socket.socket:
    """A connection that has reached the other side and stays open."""
    near = socket.socket(socket.AF_UNIX)
    near.settimeout(60)
    near.connect(str(tunnel.folder / f".s.PGSQL.{PORT}"))
    near.sendall(ASKED.format(number).encode())
    assert near.recv(12) == b"HTTP/1.1 200"
    return near


def test_its_end_breaks_off_connections_without_a_word(
    plane: ControlPlane, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = "cell.local.localhost"
    credential = Credential("app", "x", host, plane.cell.port, f"postgresql://{host}/app")
    with caplog.at_level(logging.WARNING, "asyncio"):
        with PostgresTunnel(credential, Authorities(str(folder / "ca.pem"), None)) as tunnel:
            near = [connected(tunnel, number) for number in range(3)]
        gc.collect()
    assert [record.getMessage() for record in caplog.records] == []
    assert tunnel.failure is None
    for each in near:
        each.close()
