"""The network of an instance: who may replace it, what is refused, and what the cell is told."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from contract_tests import written
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import Estate, estate, is_problem
from control.cells.client import CellRefused, CellUnavailable


@pytest.fixture
def here(house: House) -> Estate:
    return estate(house, "Networked")


def path(here: Estate) -> str:
    return f"{here.tenant.path}/instances/{here.instance_id}/network"


def replace(house: House, here: Estate, body: Any, if_match: str | None = "*") -> httpx.Response:
    token = house.session(here.tenant.owner.id, mfa=True)
    headers = {} if if_match is None else {"If-Match": if_match}
    return house.request("PUT", path(here), token, json=body, headers=headers)


def authority(*, ca: bool = True, days: int = 3650) -> tuple[str, str]:
    """A certificate and its key, both PEM; valid however far tests have moved the clock on."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Clients")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=60))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    kept = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return made.public_bytes(serialization.Encoding.PEM).decode(), kept.decode()


def test_an_instance_begins_open(house: House, here: Estate) -> None:
    answer = house.get(path(here), here.tenant.key)
    assert answer.headers["etag"] == '"0"'
    told = answer.json()
    assert (told["allow_cidrs"], told["open_to_the_world"], told["applied"]) == (None, True, True)
    assert (told["client_ca_pem"], told["updated_by"]) == (None, None)


def test_a_branch_admits_nobody_whom_its_source_refuses(house: House, here: Estate) -> None:
    bundle = {"allow_cidrs": ["192.0.2.0/24"], "client_ca_pem": authority()[0]}
    assert replace(house, here, bundle).status_code == 200
    house.settle()
    branches = f"{here.tenant.path}/instances/{here.instance_id}/branches"
    made = house.post(branches, here.tenant.key, json={})
    assert made.status_code == 201, made.text
    branch_id = made.json()["id"]
    told = house.get(f"{here.tenant.path}/instances/{branch_id}/network", here.tenant.key).json()
    assert {name: told[name] for name in bundle} == bundle
    assert (told["open_to_the_world"], told["applied"]) == (False, True)
    house.settle()
    # The first thing that the cell hears of the branch says so.
    assert house.cell.effects(branch_id) == ["put"]
    wanted = house.cell.told(branch_id)
    assert {name: wanted[name] for name in bundle} == bundle


def test_a_list_is_replaced_whole_and_reaches_the_cell(house: House, here: Estate) -> None:
    given = ["192.0.2.0/24", "2001:DB8:0::/32", "198.51.100.7", "192.0.2.0/24"]
    answer = replace(house, here, {"allow_cidrs": given})
    assert answer.status_code == 200, answer.text
    kept = ["192.0.2.0/24", "2001:db8::/32", "198.51.100.7/32"]
    assert answer.json()["allow_cidrs"] == kept
    assert (answer.json()["open_to_the_world"], answer.json()["applied"]) == (False, False)
    assert answer.json()["updated_by"] == here.tenant.owner.id
    house.settle()
    now = house.get(path(here), here.tenant.key)
    assert now.json()["applied"] is True
    assert now.headers["etag"] == answer.headers["etag"] == '"1"'
    assert house.cell.told(here.instance_id)["allow_cidrs"] == kept

    pem, _ = authority()
    added = replace(house, here, {"client_ca_pem": pem}, if_match='"1"').json()
    assert added["allow_cidrs"] == kept
    assert [one["subject"] for one in added["client_authorities"]] == ["CN=Clients"]
    house.settle()
    assert house.cell.told(here.instance_id)["client_ca_pem"] == pem
    # A change of another kind tells the cell the same.
    base = f"{here.tenant.path}/instances/{here.instance_id}"
    house.request("PATCH", base, here.tenant.key, json={"engine_version": "1.5", "size": "s0"})
    house.settle()
    assert house.cell.told(here.instance_id)["allow_cidrs"] == kept


def test_what_is_not_applied_says_why(house: House, here: Estate) -> None:
    told = house.get(path(here), here.tenant.key).json()
    assert (told["applied"], told["status_reason"]) == (True, None)
    told = replace(house, here, {"allow_cidrs": []}).json()
    assert (told["applied"], told["status_reason"]) == (
        False,
        "the settings are being sent to the instance's cell",
    )
    before = house.cell.before
    try:
        house.cell.before = failing(CellUnavailable("the cell cannot be reached"))
        house.turns(1)
        assert reason(house, here) == "the cell cannot be reached; it will be tried again"
        house.cell.before = failing(CellRefused("the list is too long"))
        house.settle()
        assert (
            reason(house, here) == "the list is too long; replace the network settings to try again"
        )
    finally:
        house.cell.before = before
    replace(house, here, {"allow_cidrs": None})
    assert reason(house, here) == "the settings are being sent to the instance's cell"
    house.settle()
    assert reason(house, here) is None


def test_a_network_replaced_just_before_a_deletion_applies_after_the_return(
    house: House, here: Estate
) -> None:
    base = f"{here.tenant.path}/instances/{here.instance_id}"
    replace(house, here, {"allow_cidrs": []})
    assert house.request("DELETE", base, here.tenant.key).status_code == 202
    house.settle()
    assert reason(house, here) == "the instance is deleted; the settings apply once it is restored"
    assert house.post(f"{base}/actions/undelete", here.tenant.key).status_code == 202
    house.settle()
    assert reason(house, here) is None


def failing(error: Exception) -> Callable[[str, str], None]:
    def fail(_action: str, _instance_id: str) -> None:
        raise error

    return fail


def reason(house: House, here: Estate) -> str | None:
    told: str | None = house.get(path(here), here.tenant.key).json()["status_reason"]
    return told


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "::/0"])
def test_the_whole_world_is_accepted_flagged_and_audited(
    house: House, here: Estate, cidr: str
) -> None:
    answer = replace(house, here, {"allow_cidrs": ["192.0.2.0/24", cidr]})
    assert answer.json()["open_to_the_world"] is True
    with house.database.read() as db:
        entries = written.audited(db, here.tenant.org_id)
    entry = next(one for one in entries if one.action == "instance.network.replace")
    assert entry.detail["open_to_the_world"] is True
    assert cidr in entry.detail["allow_cidrs"]
    assert entry.target == here.instance_id


def test_everything_wrong_is_said_at_once_and_nothing_is_changed(
    house: House, here: Estate
) -> None:
    wrong = ["10.0.0.1/8", "nonsense", "::ffff:10.0.0.0/104", "fe80::1%eth0", "10.0.0.0/33"]
    refused = replace(house, here, {"allow_cidrs": ["10.0.0.0/8", *wrong], "client_ca_pem": "x"})
    is_problem(refused, 422)
    pointers = [one["pointer"] for one in refused.json()["errors"]]
    assert pointers == [*(f"/allow_cidrs/{number}" for number in range(1, 6)), "/client_ca_pem"]
    said = [one["message"] for one in refused.json()["errors"]]
    assert "use 10.0.0.0/8" in said[0]
    for place in (1, 4):
        assert said[place].endswith(": write an address or a network, such as 203.0.113.0/24")
    assert house.get(path(here), here.tenant.key).headers["etag"] == '"0"'


@pytest.mark.parametrize("change", ["\u00e9\n{}", "x{}", "{}after it", " indented\n{}"])
def test_of_a_bundle_only_the_certificates_are_kept(
    house: House, here: Estate, change: str
) -> None:
    """What the gateway is to load is as it writes them itself, whatever stood around them."""
    pem, _ = authority()
    told = replace(house, here, {"client_ca_pem": change.format(pem)})
    if told.status_code == 200:
        assert told.json()["client_ca_pem"] == pem
    else:
        is_problem(told, 422)
    indented = replace(house, here, {"client_ca_pem": pem.replace("\n", "\n ")})
    assert indented.status_code == 422 or indented.json()["client_ca_pem"] == pem


@pytest.mark.parametrize("change", ["\0{}", "{}\0", "\x1b{}"])
def test_a_bundle_is_text(house: House, here: Estate, change: str) -> None:
    refused = replace(house, here, {"client_ca_pem": change.format(authority()[0])})
    is_problem(refused, 422)
    assert "one or more PEM" in refused.json()["errors"][0]["message"]


def test_a_bundle_holds_authorities_that_are_valid_and_no_keys(house: House, here: Estate) -> None:
    good, key = authority()
    for pem, said in (
        (authority(ca=False)[0], "not a CA certificate"),
        (authority(days=-1)[0], "expired at"),
        (good + key, "private key"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "one or more PEM"),
        (good * 21, "20 are allowed"),
    ):
        refused = replace(house, here, {"client_ca_pem": pem})
        is_problem(refused, 422)
        assert said in refused.json()["errors"][0]["message"]
        assert key not in refused.text


def test_of_two_who_read_the_same_the_second_is_told(house: House, here: Estate) -> None:
    read = house.get(path(here), here.tenant.key).headers["etag"]
    assert replace(house, here, {"allow_cidrs": []}, if_match=read).status_code == 200
    is_problem(replace(house, here, {"allow_cidrs": None}, if_match=read), 412)
    is_problem(replace(house, here, {"allow_cidrs": None}, if_match=None), 428)
    both = replace(house, here, {"allow_cidrs": None}, if_match=f'{read}, "1"')
    assert both.status_code == 200


def test_it_takes_a_session_with_a_second_factor(house: House, here: Estate) -> None:
    asked = {"json": {"allow_cidrs": []}, "headers": {"If-Match": "*"}}
    for token, code in (
        (here.tenant.key, "session_required"),
        (here.tenant.owner.session, "mfa_required"),
        (house.member(here.tenant.org_id, "member", mfa=True).session, "permission_missing"),
    ):
        is_problem(house.request("PUT", path(here), token, **asked), 403, code)


def test_an_instance_that_goes_has_no_network_to_replace(house: House, here: Estate) -> None:
    base = f"{here.tenant.path}/instances/{here.instance_id}"
    assert house.request("DELETE", base, here.tenant.key).status_code == 202
    is_problem(replace(house, here, {"allow_cidrs": []}), 409)


def test_a_list_may_be_set_before_the_instance_runs(house: House) -> None:
    tenant: Tenant = house.tenant("Early", plan="team")
    early = Estate(tenant, house.instance(tenant, running=False))
    assert replace(house, early, {"allow_cidrs": ["192.0.2.0/24"]}).status_code == 200
    house.settle()
    assert house.cell.told(early.instance_id)["allow_cidrs"] == ["192.0.2.0/24"]
    assert house.get(path(early), tenant.key).json()["applied"] is True
