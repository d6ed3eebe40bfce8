"""One-time URLs, certificates, capacity and metrics: what an instance lets its owner see."""

from datetime import datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contract_tests.api.access.test_organizations import audited
from contract_tests.api.harness import CELL_ID, House, Tenant
from contract_tests.api.rows import Estate, estate, is_problem
from storage.access.users import User
from storage.instances.samples import Sample


@pytest.fixture(scope="module")
def here(house: House) -> Estate:
    return estate(house)


def of(here: Estate, what: str) -> str:
    return f"{here.tenant.path}/instances/{here.instance_id}/{what}"


def claims(url: str) -> dict[str, Any]:
    """Those of the token in the URL, once its signature holds."""
    key = Ed25519PrivateKey.from_private_bytes(b"p" * 32).public_key()
    # By the house's clock, which tests move.
    timeless: jwt.types.Options = {"verify_exp": False, "verify_iat": False}
    return jwt.decode(url.rpartition("/")[2], key, ["EdDSA"], timeless, audience=CELL_ID)


@pytest.mark.parametrize(
    ("path", "method", "action"),
    [
        ("credentials/reveal", "POST", "reveal"),
        ("credentials/rotate", "POST", "rotate"),
        ("logs", "GET", "logs"),
    ],
)
def test_a_one_time_url_is_signed_for_the_cell(
    house: House, here: Estate, path: str, method: str, action: str
) -> None:
    asked_at = house.now()
    answer = house.request(method, of(here, path), here.tenant.key)
    answered_at = house.now()
    assert answer.status_code == 200
    url = answer.json()["url"]
    assert url.startswith(f"https://cell.local.localhost:8443/v1/{action}/")
    said = claims(url)
    assert said["v"] == 1
    assert said["instance_id"] == here.instance_id
    assert said["action"] == action
    assert said["request_id"] == answer.headers["x-request-id"]
    # In whole seconds, the last of which may not be a whole one.
    assert asked_at.timestamp() + 59 < said["exp"] <= answered_at.timestamp() + 60
    assert datetime.fromisoformat(answer.json()["expires_at"]).timestamp() == said["exp"]
    again = house.request(method, of(here, path), here.tenant.key).json()["url"]
    assert claims(again)["jti"] != said["jti"]
    assert asked_at.timestamp() <= said["iat"] <= answered_at.timestamp()
    assert said["iat"] < claims(again)["iat"]
    names = {action for action, target in audited(house, here.tenant.org_id)}
    assert {f"instance.{path.replace('/', '.')}"} <= names


def test_a_rotation_says_how_long_former_credentials_work(house: House, here: Estate) -> None:
    path, key = of(here, "credentials/rotate"), here.tenant.key
    usual = house.services.settings.rotation_overlap_s
    for body, told in (
        (None, usual),
        ({}, usual),
        ({"overlap_s": 0}, 0),
        ({"overlap_s": 604_800}, 604_800),
    ):
        given = {} if body is None else {"json": body}
        answer = house.post(path, key, **given)
        assert answer.status_code == 200, answer.text
        assert claims(answer.json()["url"])["overlap_s"] == told
    for wrong in (-1, 604_801, 0.5, "0", None):
        is_problem(house.post(path, key, json={"overlap_s": wrong}), 422)
    is_problem(house.post(path, key, json={"overlap": 0}), 422)
    assert "overlap_s" not in claims(house.post(of(here, "credentials/reveal"), key).json()["url"])


def test_there_is_no_credential_before_the_instance_ran_and_after_it_went(house: House) -> None:
    tenant = house.tenant()
    fresh = Estate(tenant, house.instance(tenant, running=False))
    for path in ("credentials/reveal", "credentials/rotate"):
        is_problem(house.post(of(fresh, path), tenant.key), 409)
    for path in ("logs", "capacity"):
        is_problem(house.get(of(fresh, path), tenant.key), 409)
    house.settle()
    house.request("DELETE", f"{tenant.path}/instances/{fresh.instance_id}", tenant.key)
    for path in ("credentials/reveal", "credentials/rotate"):
        is_problem(house.post(of(fresh, path), tenant.key), 409)


def test_an_organization_may_want_a_second_factor_of_everyone(house: House) -> None:
    here = estate(house)
    tenant = here.tenant
    house.change_org(tenant.org_id, require_mfa=True)
    for path in ("credentials/reveal", "credentials/rotate"):
        for token in (tenant.key, tenant.owner.session):
            is_problem(house.post(of(here, path), token), 403, "mfa_required")
        stepped_up = house.session(tenant.owner.id, mfa=True)
        assert house.post(of(here, path), stepped_up).status_code == 200


def test_who_enrolled_a_second_factor_is_asked_for_it(house: House) -> None:
    here = estate(house)
    owner = here.tenant.owner
    path = of(here, "credentials/reveal")
    assert house.post(path, owner.session).status_code == 200
    _enrol(house, here.tenant)
    is_problem(house.post(path, owner.session), 403, "mfa_required")
    assert house.post(path, house.session(owner.id, mfa=True)).status_code == 200
    assert house.post(path, here.tenant.key).status_code == 200


def test_no_key_stands_in_for_a_second_factor(house: House) -> None:
    here = estate(house)
    owner = here.tenant.owner
    path, body = f"{here.tenant.path}/api-keys", {"name": "way round", "role": "owner"}
    assert house.post(path, owner.session, json=body).status_code == 201
    _enrol(house, here.tenant)
    is_problem(house.post(path, owner.session, json=body), 403, "mfa_required")
    suspended = f"{path}/{here.tenant.key_id}/actions/unsuspend"
    is_problem(house.post(suspended, owner.session), 403, "mfa_required")
    stepped_up = house.session(owner.id, mfa=True)
    assert house.post(path, stepped_up, json=body).status_code == 201
    assert house.post(path, here.tenant.key, json=body).status_code == 201


def test_certificates_come_as_one_pem_file(house: House, here: Estate) -> None:
    for path in (f"{here.tenant.path}/ca.pem", of(here, "ca.pem"), f"{house.tenant().path}/ca.pem"):
        token = here.tenant.key
        if not path.startswith(here.tenant.path):
            continue
        answer = house.get(path, token)
        assert answer.headers["content-type"] == "application/x-pem-file"
        assert answer.text.count("BEGIN CERTIFICATE") == 2
        assert answer.text.index("aW50ZXJtZWRpYXRl") < answer.text.index("cm9vdA==")
    empty = house.tenant()
    assert house.get(f"{empty.path}/ca.pem", empty.key).text.count("BEGIN CERTIFICATE") == 2


def test_capacity_is_asked_of_the_cell_and_remembered_while_paused(house: House) -> None:
    here = estate(house)
    _meter(house, here, days=3, growth_bytes=1000)
    figures = {"storage_bytes": 5_000, "memory_bytes": 500 * 2**20}
    house.cell.becomes(here.instance_id, **figures)
    running = house.get(of(here, "capacity"), here.tenant.key).json()
    assert running["storage"] == {
        "used_bytes": 5_000,
        "limit_bytes": 10**9,
        "growth_bytes_per_day": 24_000,
    }
    assert running["memory"]["pressure"] == "high"
    assert running["connections"]["limit"] == 20
    house.post(of(here, "actions/pause"), here.tenant.key)
    house.settle()
    paused = house.get(of(here, "capacity"), here.tenant.key).json()
    assert paused["storage"]["used_bytes"] == 72_000
    assert paused["memory"]["used_bytes"] == 0


def test_metrics_are_hours_oldest_first_in_pages(house: House) -> None:
    here = estate(house)
    _meter(house, here, days=2, growth_bytes=1)
    key = here.tenant.key
    day = house.get(of(here, "metrics?limit=200"), key).json()["items"]
    assert 23 <= len(day) <= 24
    assert [one["hour"] for one in day] == sorted(one["hour"] for one in day)
    first = house.get(of(here, "metrics?limit=10"), key).json()
    assert first["items"] == day[:10]
    rest = house.get(of(here, f"metrics?limit=200&cursor={first['next_cursor']}"), key).json()
    assert rest["items"] == day[10:]
    between = f"metrics?from={day[3]['hour']}&to={day[5]['hour']}"
    assert house.get(of(here, between), key).json()["items"] == day[3:5]
    for odd in ("0000-01-01T00:00:00Z", "2016-12-31T23:59:60Z"):
        assert house.get(of(here, f"metrics?from={odd}"), key).status_code == 422


def _meter(house: House, here: Estate, *, days: int, growth_bytes: int) -> None:
    """Samples of the hours before this one, which does not end while a test looks at them."""
    if house.now().minute > 55:
        house.pass_time(5 * 60)
    last = house.now().replace(minute=0, second=0, microsecond=0)
    hours = days * 24
    with house.database.write() as db:
        db.add_all(
            Sample(
                instance_id=here.instance_id,
                org_id=here.tenant.org_id,
                hour=last - timedelta(hours=hours - number),
                storage_bytes=growth_bytes * (number + 1),
                seen_at=last,
            )
            for number in range(hours)
        )


def _enrol(house: House, tenant: Tenant) -> None:

    with house.database.write() as db:
        db.get_one(User, tenant.owner.id).totp_confirmed_at = house.database.now(db)
