"""What an ACME server may do to a cell: what is in force stays, and orders are not multiplied."""

from collections.abc import Iterator
from datetime import datetime

import pytest

from contract_tests.cell.certificates.between import Fault, problem
from contract_tests.cell.certificates.conftest import MakeRegion
from contract_tests.cell.certificates.region import Region
from contract_tests.cell.rig import until

ORDER, NEW_ORDER, CERTIFICATE = "/my-order/", "/order-plz", "/certZ/"


# Each has an ACME server of its own, and waits for it.
pytestmark = pytest.mark.nightly


@pytest.fixture
def fresh(make_region: MakeRegion) -> Region:
    """For tests that stop parts of it, or count."""
    made = make_region()
    made.start()
    return made


@pytest.fixture
def spoiled(region: Region) -> Iterator[Region]:
    """The module's, for tests that spoil answers."""
    yield region
    region.pebble.between.faults.clear()


def add(region: Region, host: str) -> str:
    """The instance that has the domain now."""
    region.point(host)
    instance_id = region.rig.make()
    region.rig.put(instance_id, domains=[host])
    return instance_id


def test_nonces_that_are_refused_cost_nothing(spoiled: Region) -> None:
    spoiled.pebble.between.faults.append(problem(NEW_ORDER, "badNonce", times=4))
    host = "nonces.example.com"
    spoiled.issued(add(spoiled, host), host)
    assert not [
        line
        for line in spoiled.rig.log_path.read_text().splitlines()
        if "acme.failed" in line and host in line
    ]


def test_a_rate_limit_is_kept_to(spoiled: Region) -> None:
    host, between = "limited.example.com", spoiled.pebble.between
    between.faults.append(problem(NEW_ORDER, "rateLimited", 429, Retry_After="4"))
    before = orders(spoiled)
    instance_id = add(spoiled, host)
    told = spoiled.failed(instance_id, host, "rateLimited")
    spoiled.served_locally(host)
    spoiled.issued(instance_id, host)
    (asked_at,) = between.times(NEW_ORDER, 429)
    ordered_at = between.times(NEW_ORDER, 201)[-1]
    retry_at = datetime.fromisoformat(told["retry_at"]).timestamp()
    # The moment that is told is in whole seconds at the worst.
    assert asked_at + 4 - 1 < retry_at < ordered_at + 1
    assert ordered_at >= asked_at + 4
    assert orders(spoiled) == before + 1


def test_a_server_that_fails_is_left_alone_by_every_domain(make_region: MakeRegion) -> None:
    region = make_region(acme_retry_s=2.0, acme_retry_max_s=2.0)
    region.start()
    broken = problem("/dir", "serverInternal", 500, times=1)
    region.pebble.between.faults.append(broken)
    hosts = [f"many{number}.example.com" for number in range(3)]
    region.point(*hosts)
    instance_id = region.rig.make()
    region.rig.put(instance_id, domains=hosts)
    for host in hosts:
        region.issued(instance_id, host)
    assert broken.times == 0
    first, second, *_ = region.pebble.between.answered
    assert (first.path, first.status) == ("/dir", 500)
    assert second.at - first.at >= 2.0, "one was refused, and two did not ask"


def test_a_server_that_is_away_takes_nothing_down(fresh: Region) -> None:
    host = "away.example.com"
    fresh.pebble.between.stop()
    instance_id = add(fresh, host)
    told = fresh.failed(instance_id, host, "cannot be reached")
    assert told["issued_by"] == "local"
    fresh.served_locally(host)
    fresh.pebble.between.start()
    fresh.issued(instance_id, host)


def test_an_order_that_takes_long_is_waited_for(spoiled: Region) -> None:
    host, between = "long.example.com", spoiled.pebble.between
    slow = Fault(ORDER, 2, headers={"retry-after": "1"}, changes={"status": "processing"})
    between.faults.append(slow)
    before = orders(spoiled)
    spoiled.issued(add(spoiled, host), host)
    assert slow.times == 0
    assert orders(spoiled) == before + 1


def orders(region: Region) -> int:
    """How many the server has."""
    return region.pebble.log.count("Added order")


def test_an_order_outlives_the_cell(fresh: Region) -> None:
    host, between = "killed.example.com", fresh.pebble.between
    between.faults.append(Fault(ORDER, 1000, changes={"status": "processing"}))
    instance_id = add(fresh, host)
    until(lambda: between.count(ORDER) > 1, "the order is under way")
    fresh.rig.kill()
    between.faults.clear()
    fresh.rig.start()
    fresh.issued(instance_id, host)
    assert orders(fresh) == 1


def test_a_domain_that_does_not_lead_here_is_tried_ever_less(make_region: MakeRegion) -> None:
    region = make_region(acme_retry_s=0.5, acme_retry_max_s=600.0)
    region.start()
    host = "elsewhere.example.com"
    instance_id = region.rig.make()
    region.rig.put(instance_id, domains=[host])
    told = region.failed(instance_id, host, "Could not resolve")
    retried = until(lambda: later(region, instance_id, host, told["retry_at"]), "it is put off")
    # Who removes the domain and adds it again begins no new count.
    region.rig.put(instance_id, domains=[])
    region.point(host)
    region.rig.put(instance_id, domains=[host])
    region.issued(instance_id, host)
    first, second, third, fourth = region.pebble.between.times(NEW_ORDER, 201)
    assert second - first >= 0.5
    assert third - second >= 1.0
    assert fourth - third >= 2.0
    assert fourth > retried.timestamp() - 1, "as was told, in whole seconds at the worst"


def later(region: Region, instance_id: str, host: str, than: str) -> datetime | None:
    """When the third attempt is followed by a fourth, once the third has failed."""
    told = region.certificate(instance_id, host)["retry_at"]
    failed = region.rig.log_path.read_text().count("acme.failed")
    return datetime.fromisoformat(told) if told > than and failed == 3 else None


def test_what_is_no_certificate_for_it_is_not_served(spoiled: Region) -> None:
    host = "garbage.example.com"
    garbage = (spoiled.rig.home / "pki" / "root.pem").read_text()
    fault = Fault(CERTIFICATE, body=garbage)
    spoiled.pebble.between.faults.append(fault)
    instance_id = add(spoiled, host)
    spoiled.failed(instance_id, host, "invalid certificate chain")
    spoiled.issued(instance_id, host)


def test_a_server_that_forgot_the_account_gets_it_again(fresh: Region) -> None:
    first = add(fresh, "first.example.com")
    fresh.issued(first, "first.example.com")
    fresh.pebble.restart()
    second = add(fresh, "second.example.com")
    fresh.issued(second, "second.example.com")
    until(lambda: fresh.taken("second.example.com", fresh.trusting()), "served under the new root")


def test_terms_that_are_not_agreed_to_are_named(make_region: MakeRegion) -> None:
    region = make_region(acme_terms_agreed=False)
    region.start()
    instance_id = add(region, "terms.example.com")
    told = region.failed(instance_id, "terms.example.com", "acme_terms_agreed")
    assert told["issued_by"] == "local"


def test_an_account_is_bound_where_the_server_wants_it(make_region: MakeRegion) -> None:
    key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
    region = make_region(acme_eab_key_id="kid-1", acme_eab_hmac_key=key)
    region.start(externalAccountBindingRequired=True, externalAccountMACKeys={"kid-1": key})
    instance_id = add(region, "bound.example.com")
    region.issued(instance_id, "bound.example.com")


def test_a_binding_that_is_wanting_is_named(make_region: MakeRegion) -> None:
    region = make_region()
    region.start(externalAccountBindingRequired=True, externalAccountMACKeys={"kid-1": "a2V5"})
    instance_id = add(region, "unbound.example.com")
    region.failed(instance_id, "unbound.example.com", "externalAccountRequired")
