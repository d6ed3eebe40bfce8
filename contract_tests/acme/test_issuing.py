"""Domains get certificates from a real ACME server, and are served with them."""

from contract_tests.acme.region import Region
from contract_tests.cell.rig import until


def test_a_domain_is_certified_by_the_acme_server(region: Region) -> None:
    host = "db.example.com"
    region.point(host)
    instance_id = region.rig.make()
    password = region.rig.reveal(instance_id)["password"]
    region.rig.put(instance_id, domains=[host])
    told = region.issued(instance_id, host)
    assert (told["status_reason"], told["retry_at"]) == (None, None)
    context = region.trusting()
    until(lambda: region.taken(host, context), "the gateway serves it")
    assert region.query(host, password, context, "SELECT 42 AS n").json()["rows"] == [[42]]
    assert not region.taken(host, region.trusting_local())
    region.rig.action(instance_id, "erase")
