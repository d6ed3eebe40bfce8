"""Who may connect by the API, by their address: what is said to those who may not."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from control.boundary import allow_list, subjects
from control.boundary.call import Call
from specserver import Forbidden
from storage.errors import StateConflict
from storage.network import networks
from storage.network.networks import Network

NEEDS_CERTIFICATES = Network(client_ca_pem="-----BEGIN CERTIFICATE-----", allow_cidrs=None)
ONE_ADDRESS = Network(client_ca_pem=None, allow_cidrs=["192.0.2.1/32"])


def test_where_certificates_are_required_no_address_helps() -> None:
    with pytest.raises(StateConflict) as refused:
        allow_list.check(NEEDS_CERTIFICATES, "192.0.2.1", "the console")
    assert refused.value.detail == (
        "the instance requires client certificates, which the console cannot present"
    )


def test_an_address_that_is_not_on_the_list_is_named() -> None:
    allow_list.check(ONE_ADDRESS, "192.0.2.1", "the console")
    with pytest.raises(Forbidden) as refused:
        allow_list.check(ONE_ADDRESS, "192.0.2.2", "the console")
    assert refused.value.code == "address_not_allowed"
    assert refused.value.detail == "192.0.2.2 is not on the instance's allow-list"


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Checks the address of a repeated request about an instance of this network."""

    def check(network: Network, ip: str) -> None:
        def resolve(call: Call, *, lock: bool) -> dict[str, Any]:
            assert call.ip == ip
            assert lock is False
            return {"instance": network}

        monkeypatch.setattr(subjects, "resolve", resolve)
        monkeypatch.setattr(networks, "of_instance", lambda _db, found: found)
        allow_list.check_again(cast("Call", SimpleNamespace(ip=ip, db=None)))

    return check


def test_whoever_repeats_a_request_must_still_be_on_the_list(repeated: Any) -> None:
    repeated(ONE_ADDRESS, "192.0.2.1")
    with pytest.raises(Forbidden, match=r"^192\.0\.2\.2 is not"):
        repeated(ONE_ADDRESS, "192.0.2.2")
    with pytest.raises(StateConflict, match=r"which the queue API cannot present$"):
        repeated(NEEDS_CERTIFICATES, "192.0.2.1")
