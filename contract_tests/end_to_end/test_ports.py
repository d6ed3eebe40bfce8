"""The gateway's ports: found where any will do, and named by their setting where they are taken."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contract_tests.kept_port import KeptPort
from gateway import ports
from gateway.listening import PortError, listen
from gateway.settings import GatewaySettings
from menagerie.errors import SettingsError
from menagerie.held_ports import ports_held
from menagerie.settings import GATEWAY_PORTS, load

NOBODY = 65534
# Prints the ports that it can listen on.
INTRUDE = """
import socket, sys
for port in map(int, sys.argv[1].split(",")):
    for address in ("127.0.0.1", "0.0.0.0"):
        for said in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,),
                     (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):
            with socket.socket() as listener:
                for option in said:
                    listener.setsockopt(socket.SOL_SOCKET, option, 1)
                try:
                    listener.bind((address, port))
                    listener.listen()
                except OSError:
                    continue
                print(address, port, said)
"""


def every(port: int) -> dict[str, Any]:
    return {f"gateway_{protocol}_port": port for protocol in GATEWAY_PORTS}


def test_the_defaults_are_those_of_the_cell(tmp_path: Path) -> None:
    assert load(home=tmp_path).gateway_ports == ports.DEFAULT


def test_a_free_port_is_found_for_each(tmp_path: Path) -> None:
    with ports_held(load(home=tmp_path, port=0, **every(0))) as found:
        chosen = [found.port, *found.gateway_ports.values()]
    assert all(chosen)
    assert len(set(chosen)) == len(chosen)


def test_a_port_that_was_found_is_kept_for_its_part(tmp_path: Path) -> None:
    with ports_held(load(home=tmp_path, port=0, **every(0))) as found:
        for port in (found.port, *found.gateway_ports.values()):
            for options in ((), ("SO_REUSEADDR",)):
                with pytest.raises(OSError, match="in use"):
                    opened(port, *options)
            # As all parts say.
            for _ in range(2):
                socket.create_server(("127.0.0.1", port), reuse_port=True).close()


def test_a_port_that_was_found_is_kept_from_other_users(tmp_path: Path) -> None:
    """Who listened there while a part is started anew would be sent keys, and keep it away."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with ports_held(load(home=tmp_path, port=0, **every(0))) as found:
        ports = ",".join(str(port) for port in (found.port, *found.gateway_ports.values()))
        listener = socket.create_server(("127.0.0.1", found.port), reuse_port=True)
        for is_listened in (True, False):
            if not is_listened:
                listener.close()
            # The system's, as another user may not enter the folder that ours lies in.
            command = ["/usr/bin/env", "python3", "-c", INTRUDE, ports]
            done = subprocess.run(command, capture_output=True, text=True, check=True, user=NOBODY)
            assert done.stdout == ""


def test_a_port_that_another_service_of_the_user_has_is_not_shared(tmp_path: Path) -> None:
    first = load(home=tmp_path, port=0, **every(0))
    with ports_held(first) as found, socket.create_server(("127.0.0.1", 0)) as other:
        again = load(home=tmp_path, port=found.port, **every(0))
        with pytest.raises(SettingsError, match="in use"), ports_held(again):
            pass
        taken = load(home=tmp_path, port=other.getsockname()[1], **every(0))
        with pytest.raises(SettingsError, match="in use"), ports_held(taken):
            pass


def opened(port: int, *options: str) -> socket.socket:
    listener = socket.socket()
    try:
        for each in options:
            listener.setsockopt(socket.SOL_SOCKET, getattr(socket, each), 1)
        listener.bind(("127.0.0.1", port))
    except BaseException:
        listener.close()
        raise
    return listener


def test_https_kinds_may_share_a_port(tmp_path: Path) -> None:
    with KeptPort() as kept:
        port = kept.number
        shared = every(0) | {"gateway_https_port": port, "gateway_clickhouse_https_port": port}
        with ports_held(load(home=tmp_path, port=0, **shared)) as settled:
            found = settled.gateway_ports
        assert found["https"] == found["clickhouse_https"] == port
        both = {"https": port, "clickhouse_https": port}
        settings = GatewaySettings(tmp_path, ports=both)
        ((listening,),) = listen(settings, frozenset(both))
        listening.socket.close()
        assert listening.protocols == ("https", "clickhouse_https")


def test_others_may_not(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"^gateway_mysql_port: gateway_https_port is already 9999"
    ):
        load(home=tmp_path, gateway_https_port=9999, gateway_mysql_port=9999)
    settings = GatewaySettings(tmp_path, ports={"https": 9999, "postgres": 9999})
    with pytest.raises(PortError, match="gateway_https_port and gateway_postgres_port"):
        listen(settings, frozenset({"https", "postgres"}))


def test_a_port_that_is_taken_is_named_by_its_option(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = load(home=tmp_path, port=0, **every(0) | {"gateway_resp_port": port})
        refused = pytest.raises(SettingsError, match=rf"port {port}: .* --gateway-resp-port")
        with refused, ports_held(settings):
            pass


def test_a_gateway_alone_names_it_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = [f"--gateway-{name.replace('_', '-')}-port=0" for name in GATEWAY_PORTS]
        options.append(f"--gateway-postgres-port={port}")
        done = subprocess.run(
            [sys.executable, "-m", "menagerie", "gateway", "--home", str(tmp_path), *options],
            env={**os.environ, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "gateway_postgres_port" in done.stderr
    assert "Traceback" not in done.stderr
