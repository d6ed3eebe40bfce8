"""Networks full of addresses give way to others where a server is full of connections."""

from contract_tests.specserver.test_http_protocol import Peer
from specserver.crowds import Crowds


def test_a_network_with_a_connection_from_each_address_gives_way_first() -> None:
    crowds = Crowds(5, all_told=22)
    for _ in range(3):
        crowds.enter("198.51.100.1", Peer())
    many = [Peer() for _ in range(20)]
    for number, each in enumerate(many):
        crowds.enter(f"2001:db8:7:{number:x}::1", each)
    assert crowds.is_full()
    assert crowds.first_to_go(Peer()) is many[0]
