"""Which addresses lead within, by whatever spelling."""

import pytest

from gateway.public_addresses import is_allowed

DENIED = [
    *("0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.255", "169.254.169.254"),
    *("172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1"),
    *("198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1"),
    *("255.255.255.255", "::", "::1", "::10.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8%eth0"),
    *("64:ff9b::10.0.0.1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1"),
    *("2002:0a00:0001::1", "3fff::1", "5f00::1", "fc00::1", "fd00::1", "fe80::1"),
    *("fe80::1%eth0", "fec0::1", "ff02::1", "localhost", "not-an-address", "10.0.0"),
]
ALLOWED = ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"]


@pytest.mark.parametrize("text", DENIED)
def test_an_address_within_is_denied(text: str) -> None:
    assert is_allowed(text) == (text == "::ffff:8.8.8.8%eth0")


@pytest.mark.parametrize("text", ALLOWED)
def test_an_address_of_the_internet_is_allowed(text: str) -> None:
    assert is_allowed(text)


def test_a_network_of_the_settings_is_excepted() -> None:
    assert is_allowed("10.1.2.3", ("10.1.0.0/16",))
    assert is_allowed("::ffff:10.1.2.3", ("10.1.0.0/16",))
    assert not is_allowed("10.2.0.1", ("10.1.0.0/16",))
    assert not is_allowed("fd00::1", ("10.0.0.0/8",))
