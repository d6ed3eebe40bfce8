"""Every setting of the gateway reaches it, and load balancers are networks as people write them."""

from pathlib import Path

import pytest

import gateway.main
from gateway.settings import GatewaySettings
from menagerie import data_plane
from menagerie.settings import Settings, load


def test_the_gateway_gets_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "gateway_listen": "127.0.0.2",
        "gateway_workers": 3,
        "gateway_mysql_version": "8.0.30",
        "gateway_proxy_cidrs": ["10.1.2.3/8", "::1"],
    }
    ports = {name for name in Settings.model_fields if name.endswith("_port")}
    assert (
        set(given)
        == {name for name in Settings.model_fields if name.startswith("gateway_")} - ports
    )
    got: list[GatewaySettings] = []
    monkeypatch.setattr(gateway.main, "run", got.append)
    monkeypatch.setattr(data_plane, "loaded", lambda: None)
    data_plane.run_gateway(load(home=tmp_path, gateway_resp_port=7000, **given))
    (one,) = got
    assert (one.listen, one.workers, one.mysql_version) == ("127.0.0.2", 3, "8.0.30")
    assert (one.proxy_cidrs, one.ports["resp"]) == (("10.1.2.3/8", "::1"), 7000)
