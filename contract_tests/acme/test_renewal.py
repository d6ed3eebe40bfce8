"""Certificates are renewed while they are in use, and stay to their end where they cannot be."""

import base64
import contextlib
import http.client
import json
import socket
import time

from cryptography import x509

from contract_tests.acme.conftest import MakeRegion
from contract_tests.acme.region import Region
from contract_tests.cell.rig import until

LIFE_S = 24


def serial(region: Region, host: str) -> int:
    return x509.load_der_x509_certificate(region.handshake(host, region.trusting())).serial_number


def certified(region: Region, host: str) -> tuple[str, str]:
    """An instance that has the domain, and its password."""
    region.point(host)
    instance_id = region.rig.make()
    password = region.rig.reveal(instance_id)["password"]
    region.rig.put(instance_id, domains=[host])
    region.issued(instance_id, host)
    context = region.trusting()
    until(lambda: region.taken(host, context), "the gateway serves it")
    return instance_id, password


def speaker(region: Region, host: str) -> http.client.HTTPConnection:
    """By one connection, which it cannot make anew."""
    spoken = http.client.HTTPConnection(host)
    plain = socket.create_connection(("127.0.0.1", region.ports["https"]), 20)
    spoken.sock = region.trusting().wrap_socket(plain, server_hostname=host)
    spoken.auto_open = 0
    return spoken


def ask(spoken: http.client.HTTPConnection, password: str) -> int:
    login = base64.b64encode(f"app:{password}".encode()).decode()
    headers = {"content-type": "application/json", "authorization": f"Basic {login}"}
    spoken.request("POST", "/query", json.dumps({"sql": "SELECT 1"}), headers)
    answer = spoken.getresponse()
    answer.read()
    return answer.status


def test_a_renewal_changes_the_certificate_and_cuts_nobody(make_region: MakeRegion) -> None:
    region = make_region()
    region.start(lifetime_s=LIFE_S)
    host = "renewed.example.com"
    began = time.time()
    _, password = certified(region, host)
    with contextlib.closing(speaker(region, host)) as spoken:
        first = serial(region, host)

        def renewed() -> bool:
            # Asked all the time, since the engine hangs up on a connection that is quiet.
            assert ask(spoken, password) == 200
            return serial(region, host) != first

        until(renewed, "the new certificate is served")
        assert time.time() - began > LIFE_S / 2, "not before it was due"
        assert ask(spoken, password) == 200, "the connection is still there"
    assert region.pebble.log.count("Added order") == 2


def test_the_former_certificate_stays_where_it_cannot_be_renewed(make_region: MakeRegion) -> None:
    region = make_region()
    region.start(lifetime_s=LIFE_S)
    host = "former.example.com"
    instance_id, _ = certified(region, host)
    first, context = serial(region, host), region.trusting()
    region.pebble.between.stop()
    told = region.failed(instance_id, host, "cannot be reached")
    assert told["issued_by"] == "acme"
    shown = x509.load_der_x509_certificate(region.handshake(host, context))
    assert shown.serial_number == first
    # A cell that looks after it in the meantime leaves it in force, too.
    region.rig.terminate()
    region.rig.start()
    assert region.certificate(instance_id, host)["issued_by"] == "acme"
    until(lambda: not region.taken(host, context), "it ends")
    region.rig.put(instance_id, domains=[host])
    region.served_locally(host)
    assert region.certificate(instance_id, host)["issued_by"] == "local"
    region.pebble.between.start()
    region.issued(instance_id, host)
