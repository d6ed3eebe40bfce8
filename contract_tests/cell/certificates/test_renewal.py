"""Certificates are renewed while they are in use, and stay to their end where they cannot be."""

import base64
import contextlib
import http.client
import json
import socket
import time
from itertools import pairwise

import pytest

from contract_tests.cell.certificates.conftest import MakeRegion
from contract_tests.cell.certificates.region import Region, unverifying
from contract_tests.cell.rig import until
from contract_tests.gateway.rig import WAIT_S

LIFE_S = 24
SHORT_LIFE_S = 15
# More than all the buffers between an engine and a client hold.
ROWS = 10_000


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
    plain = socket.create_connection(("127.0.0.1", region.ports["https"]), WAIT_S)
    spoken.sock = unverifying().wrap_socket(plain, server_hostname=host)
    spoken.auto_open = 0
    return spoken


def ask_for_much(spoken: http.client.HTTPConnection, password: str) -> http.client.HTTPResponse:
    """An answer that does not end before it is read."""
    login = base64.b64encode(f"app:{password}".encode()).decode()
    headers = {"content-type": "application/json", "authorization": f"Basic {login}"}
    sql = f"SELECT repeat('x', 3000) FROM range({ROWS})"
    spoken.request("POST", "/query", json.dumps({"sql": sql}), headers)
    return spoken.getresponse()


@pytest.mark.nightly
def test_a_renewal_changes_the_certificate_and_cuts_nobody(make_region: MakeRegion) -> None:
    region = make_region()
    region.start(lifetime_s=SHORT_LIFE_S)
    host = "renewed.example.com"
    _, password = certified(region, host)
    context = region.trusting()
    with contextlib.closing(speaker(region, host)) as spoken:
        first = region.shown(host).serial_number
        answer = ask_for_much(spoken, password)
        until(
            lambda: region.shown(host).serial_number != first and region.taken(host, context),
            "the new certificate is served",
        )
        rows = json.loads(answer.read())["rows"]
        assert (answer.status, len(rows)) == (200, ROWS), "the connection is still there"
    ordered_at = region.pebble.between.times("/order-plz", 201)
    assert len(ordered_at) >= 2
    for earlier, later in pairwise(ordered_at):
        assert later - earlier > SHORT_LIFE_S / 2, "not before it was due"


@pytest.mark.nightly
def test_the_former_certificate_stays_where_it_cannot_be_renewed(make_region: MakeRegion) -> None:
    region = make_region()
    region.start(lifetime_s=LIFE_S)
    host = "former.example.com"
    instance_id, _ = certified(region, host)
    former, context = region.shown(host), region.trusting()
    ends_at = former.not_valid_after_utc.timestamp()
    region.pebble.between.stop()
    told = region.failed(instance_id, host, "cannot be reached")
    assert told["issued_by"] == "acme" or time.time() >= ends_at
    # On a machine that stalls, the certificate may end before it is looked at.
    assert region.shown(host) == former or time.time() >= ends_at
    # A cell that looks after it in the meantime leaves it in force, too.
    region.rig.terminate()
    region.rig.start()
    issued_by = region.certificate(instance_id, host)["issued_by"]
    assert issued_by == "acme" or time.time() >= ends_at
    until(lambda: not region.taken(host, context), "it ends")
    region.rig.put(instance_id, domains=[host])
    region.served_locally(host)
    assert region.certificate(instance_id, host)["issued_by"] == "local"
    region.pebble.between.start()
    region.issued(instance_id, host)
