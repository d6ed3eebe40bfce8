"""Networks full of addresses give way to others where a server is full of connections."""

import pytest

from contract_tests.specserver.test_http_protocol import Peer
from gateway.addresses import levels
from specserver.connection_counts import ConnectionCounts


@pytest.mark.parametrize(
    "wide", ["203.0.113.{0}", "2001:db8:7:{0:x}::1", "2001:db8:7:{0:x}00::1", "2001:db8:{0:x}::1"]
)
def test_a_network_with_a_connection_from_each_address_gives_way_first(wide: str) -> None:
    counts = ConnectionCounts(5, all_told=22, levels=levels)
    for _ in range(3):
        counts.enter("198.51.100.1", Peer())
    many = {Peer(): wide.format(number) for number in range(1, 21)}
    counted_as = {peer: counts.enter(address, peer)[0] for peer, address in many.items()}
    assert counts.is_full()
    assert counts.first_to_go(Peer()) is next(iter(many))
    for peer, group in counted_as.items():
        counts.leave(group, peer)
    assert not counts.is_full()
    assert counts.first_to_go(Peer()) not in many
