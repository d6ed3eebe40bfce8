"""Certificates are renewed while they are in use, and stay to their end where they cannot be."""

import base64
import contextlib
import http.client
import json
import socket
import ssl
import time
from dataclasses import dataclass
from itertools import pairwise

import pytest
from cryptography import x509

from contract_tests.cell.certificates.conftest import MakeRegion
from contract_tests.cell.certificates.region import Region, unverifying
from contract_tests.cell.rig import DEADLINE_S, until
from contract_tests.gateway.rig import WAIT_S

LIFE_S = 24
TRIES = 3
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


@dataclass(frozen=True)
class Outage:
    """What was seen of a certificate that could not be renewed, before it ended."""

    region: Region
    instance_id: str
    context: ssl.SSLContext
    issued_by: list[str]
    shown: list[x509.Certificate]
    former: x509.Certificate


def outage(region: Region, host: str, lifetime_s: int) -> Outage | None:
    """None where the certificate ended before we had looked, as it may on a machine that stalls."""
    region.start(lifetime_s=lifetime_s)
    instance_id, _ = certified(region, host)
    former, context = region.shown(host), region.trusting()
    region.pebble.between.stop()
    # It is renewed when a third of its life is left.
    told = region.failed(instance_id, host, "cannot be reached", within_s=DEADLINE_S + lifetime_s)
    issued_by = [told["issued_by"]]
    shown = [region.shown(host)]
    # A cell that looks after it in the meantime leaves it in force, too.
    region.rig.terminate()
    region.rig.start()
    issued_by.append(region.certificate(instance_id, host)["issued_by"])
    shown.append(region.shown(host))
    if time.time() >= former.not_valid_after_utc.timestamp():
        return None
    return Outage(region, instance_id, context, issued_by, shown, former)


@pytest.mark.nightly
def test_the_former_certificate_stays_where_it_cannot_be_renewed(make_region: MakeRegion) -> None:
    host = "former.example.com"
    # The more time, the more the machine may stall.
    tries = (outage(make_region(), host, LIFE_S * 2**each) for each in range(TRIES))
    seen = next((each for each in tries if each is not None), None)
    assert seen is not None, f"it ended before we had looked, in each of {TRIES} tries"
    assert seen.issued_by == ["acme"] * 2
    assert seen.shown == [seen.former] * 2
    region = seen.region
    until(lambda: not region.taken(host, seen.context), "it ends", within_s=LIFE_S * 2**TRIES)
    region.rig.put(seen.instance_id, domains=[host])
    region.served_locally(host)
    assert region.certificate(seen.instance_id, host)["issued_by"] == "local"
    region.pebble.between.start()
    region.issued(seen.instance_id, host)
