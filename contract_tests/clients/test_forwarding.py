"""`menagerie webhooks listen` sends events to this machine only, signed as webhooks are."""

import json

import pytest
from standardwebhooks.webhooks import Webhook

from clients.errors import ClientError
from clients.forwarding import Forwarder
from contract_tests.delivery.receivers import Answering, Receiver
from control.webhooks import signing

EVENT = json.dumps({"id": "evt_1", "type": "instance.ready.v1", "data": {"name": "ü"}})


def test_what_matches_is_sent_signed_and_what_comes_back_is_shown() -> None:
    with Receiver(lambda _: Answering(202, body=b"well\nreceived")) as receiver:
        forwarder = Forwarder(f"{receiver.url}?a=b", ["instance.*"])
        assert forwarder.forward(EVENT) == "instance.ready.v1 evt_1: 202 well received"
        other = {"id": "evt_2", "type": "backup.failed.v1", "data": {}}
        assert forwarder.forward(json.dumps(other)) is None
        (got,) = receiver.received
        assert got.path == "/hook?a=b"
        assert got.body == EVENT.encode()
        Webhook(forwarder.secret).verify(got.body, got.headers)
        at = int(got.headers["svc-timestamp"])
        ours = signing.headers("evt_1", "instance.ready.v1", got.body, at, [forwarder.secret])
        assert {name: got.headers[name.lower()] for name in ours} == ours


def test_nobody_who_listens_is_said() -> None:
    receiver = Receiver()
    receiver.close()
    line = Forwarder(receiver.url, []).forward(EVENT)
    assert line is not None
    assert line.startswith("instance.ready.v1 evt_1: no response (")


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/",
        "http://example.com/",
        "http://localhost@10.0.0.1/",
        "x",
        "http://[::1",
    ],
)
def test_no_other_machine_is_sent_to(url: str) -> None:
    with pytest.raises(ClientError):
        Forwarder(url, [])
