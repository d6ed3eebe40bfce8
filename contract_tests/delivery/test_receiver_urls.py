"""Which URLs a receiver may have, and which spellings lead nowhere."""

import pytest

from control.delivery.receiver_urls import Reach, ReceiverUrl, UrlRefused, receiver_url

PUBLIC = Reach()
HERE = Reach(here=True)
INSIDE = Reach(excepted=("10.1.0.0/16",))

REFUSED = [
    # Not HTTPS, or no URL at all.
    *("http://example.com/", "ftp://example.com/", "example.com", "https://", "https:///x", ""),
    *("javascript:alert(1)", "//example.com/", "https:example.com", "https://example.com:443:1/"),
    # Whose URL it seems to be, and to whom it leads.
    *("https://a@10.0.0.1/", "https://user:pw@example.com/", "https://example.com@127.0.0.1/"),
    *("https://example.com\\@127.0.0.1/", "https://example.com/#@127.0.0.1", "https://a b.com/"),
    *("https://example.com/\r\nX: y", "https://example.com/\t", "https://exa\u00admple.com/"),
    # This machine and its networks, in all spellings.
    *("https://127.0.0.1/", "https://127.1/", "https://0x7f.1/", "https://0x7f000001/"),
    *("https://2130706433/", "https://0177.0.0.1/", "https://0/", "https://017700000001/"),
    *("https://127.0.0.1./", "https://\uff11\uff12\uff17.0.0.1/", "https://localhost/"),
    *("https://LOCALHOST./", "https://\u24db\u24de\u24d2al\u24d7ost/", "https://[::1]/"),
    *("https://[::]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/"),
    *("https://[64:ff9b::10.0.0.1]/", "https://[2002:a00:1::]/", "https://[::10.0.0.1]/"),
    *("https://[fe80::1%25eth0]/", "https://[fec0::1]/", "https://[fd00::1]/"),
    *("https://[ff02::1]/", "https://169.254.169.254/latest", "https://10.0.0.1/"),
    *("https://192.168.1.1/", "https://100.64.0.1/", "https://0.0.0.0/", "https://[::1"),
    # Names and ports that are none.
    *("https://exa_mple-.com/", "https://-a.com/", "https://a..com/", "https://.com/"),
    *("https://b\u00fccher.example/", "https://example.com:0/", "https://example.com:65536/"),
    *("https://[8.8.8.8]/", "https://[2606:4700::1111.]/", "https://[example.com]/"),
    *("https://example.com:/", "https://example.com:08080808/", "https://example.com:x/"),
    f"https://{'a.' * 130}com/",
    f"https://example.com/{'a' * 2000}",
]


@pytest.mark.parametrize("url", REFUSED)
def test_an_odd_url_is_refused(url: str) -> None:
    with pytest.raises(UrlRefused, match=r"^must "):
        receiver_url(url, PUBLIC)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://example.com", ReceiverUrl("https", "example.com", 443, "/")),
        ("HTTPS://Example.COM./a?b=c", ReceiverUrl("https", "example.com", 443, "/a?b=c")),
        ("https://example.com:8443?x=1", ReceiverUrl("https", "example.com", 8443, "/?x=1")),
        ("https://8.8.8.8/a", ReceiverUrl("https", "8.8.8.8", 443, "/a")),
        ("https://[2606:4700::1111]/", ReceiverUrl("https", "2606:4700::1111", 443, "/")),
        ("https://xn--bcher-kva.example/", ReceiverUrl("https", "xn--bcher-kva.example", 443, "/")),
    ],
)
def test_a_public_url_is_a_place(url: str, place: ReceiverUrl) -> None:
    assert receiver_url(url, PUBLIC) == place


def test_the_authority_is_what_the_host_header_has() -> None:
    assert receiver_url("https://example.com:443/", PUBLIC).authority == "example.com"
    assert (
        receiver_url("https://[2606:4700::1111]:8443/", PUBLIC).authority
        == "[2606:4700::1111]:8443"
    )


def test_development_may_use_this_machine_and_nothing_else() -> None:
    for url in ("http://localhost:3000/hook", "http://127.0.0.1:1/", "https://localhost/"):
        assert receiver_url(url, HERE).host in {"localhost", "127.0.0.1"}
    for url in ("http://example.com/", "http://127.0.0.2/", "https://10.0.0.1/"):
        with pytest.raises(UrlRefused):
            receiver_url(url, HERE)
    assert not HERE.allows("rebound.example.com", "127.0.0.1")


def test_a_network_of_the_settings_is_allowed_over_https() -> None:
    assert receiver_url("https://10.1.2.3/", INSIDE).host == "10.1.2.3"
    for url in ("http://10.1.2.3/", "https://10.2.0.1/"):
        with pytest.raises(UrlRefused):
            receiver_url(url, INSIDE)
