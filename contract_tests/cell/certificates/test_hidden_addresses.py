"""What a tenant is told of a failed certificate holds no address that the ACME server found."""

from pathlib import Path

import pytest

from cell.certificates.acme.ledger import Ledger
from cell.certificates.acme.problems import without_addresses
from cell.certificates.domains import Domains
from cell.database import Database
from cell.sealing import Sealer
from cell.settings import CellSettings

PEBBLE = "connection: Failed to connect to {} for the tls-alpn-01 challenge"
ADDRESSES = (
    "10.20.30.40", "10.20.30.40:22443", "[2001:db8::1]:443", "[2001:db8::1]", "fd00::7", "::1",
    "2001:db8:1:2:3:4:5:6", "::ffff:10.0.0.1", "fe80::1%eth0",
)  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_left_out(address: str) -> None:
    assert without_addresses(PEBBLE.format(address)) == PEBBLE.format("an address")
    for around in ("{}", "({})", "http://{}/x", "at {}, {}", "dial tcp {}: refused", "It is {}."):
        told = without_addresses(around.format(*[address] * 2))
        assert told == around.format(*["an address"] * 2)


def test_what_is_no_address_stays() -> None:
    for text in (
        "dns: Could not resolve 10.20.30.40.example.com",
        "rateLimited: too many; retry after 2026-11-23 14:25:17 UTC",
        "urn:ietf:params:acme:error:caa: CAA record for a.example.com forbids it",
        "connection refused: bad:cafe 1.2.3 [not an address]",
        "the ACME server (https://ca.internal:9000/dir) said no: 1.2.3.4.5",
    ):
        assert without_addresses(text) == text


def test_the_domain_of_a_tenant_tells_none(tmp_path: Path) -> None:
    settings = CellSettings(tmp_path, "cell_1", b"k" * 32, acme_directory="http://ca.test/dir")
    ledger = Ledger(Database(tmp_path / "cell.db"), Sealer(b"s" * 32, "acme"))
    state = ledger.state("db.example.com")
    state.failures, state.reason = 1, PEBBLE.format("10.20.30.40:443")
    ledger.keep("db.example.com", state)
    (told,) = Domains(settings, tmp_path, ledger).told(["db.example.com"])
    assert told["certificate"]["status_reason"] == PEBBLE.format("an address")
