"""Who may come in, as a specification says it: refused where malformed, else in the routes."""

from pathlib import Path
from typing import Any

import pytest

from contract_tests.cell.rig import Rig, new_id, spec
from contract_tests.gateway.authorities import Authority


@pytest.mark.parametrize(
    "changes",
    [
        {"allow_cidrs": ["10.0.0.0/33"]},
        {"allow_cidrs": ["10.0.0.0/8", "10.0.0"]},
        {"allow_cidrs": ["::1/129"]},
        {"allow_cidrs": [":::"]},
        {"client_ca_pem": "no certificate"},
        {"client_ca_pem": ""},
        {"client_ca_pem": "\0"},
        {"client_ca_pem": "\u00e9"},
        {"client_ca_pem": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
        {"domains": ["duckdb-other.local.localhost"]},
    ],
)
def test_what_the_gateway_could_not_hold_to_is_refused(
    shared_rig: Rig, changes: dict[str, Any]
) -> None:
    instance_id = new_id()
    answer = shared_rig.act("PUT", f"/v1/instances/{instance_id}", spec(instance_id, **changes))
    assert answer.status_code == 422
    assert next(iter(changes)) in answer.json()["detail"]
    assert shared_rig.get(f"/v1/instances/{instance_id}").status_code == 404


def test_authorities_and_networks_of_both_families_reach_the_gateway(
    light_rig: Rig, tmp_path: Path
) -> None:
    pem = Authority("clients", tmp_path).pem
    networks = ["192.0.2.7", "10.0.0.0/8", "2001:db8::/32", "0.0.0.0/0"]
    instance_id = light_rig.make(client_ca_pem=pem, allow_cidrs=networks)
    route = light_rig.route(instance_id)
    assert route is not None
    assert (route["client_ca_pem"], route["allow_cidrs"]) == (pem, networks)
