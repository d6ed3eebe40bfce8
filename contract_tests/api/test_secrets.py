"""What the document has secret is found again nowhere: in no table, no event and no log line."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from sqlalchemy import select

from contract_tests.api import letters
from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.api.leaks import match, report, trust
from contract_tests.api.rows import OPERATIONS, Estate, estate, is_problem, migrating, send, trusted
from contract_tests.api.second_factor import code, enrol, enrolled
from contract_tests.api.soft_authenticator import Authenticator
from contract_tests.api.sso.oidc_secrets import come_by_a_provider, coming, connect
from contract_tests.api.sso.saml_secrets import come_by_saml, coming_by_saml
from contract_tests.api.with_passkeys import OPTIONS, SIGN_IN_OPTIONS, added, asked
from contract_tests.sso_provider import SsoProvider
from control.boundary import secret_members
from control.delivery.receiver_urls import Reach
from control.siem import targets
from control.siem.lane import Sent, SiemLanes
from specserver import Operation
from storage.events import audit_chain, delivery_lanes
from storage.records import Record

NEW = "canary-staple-of-nine-oaks"
WRONG = "canary-wrong-horse-battery"
SHORT = 6
"""A code has so many characters, and is a part of others by chance."""
STEP_UP = "/v1/sessions/current/actions/step-up"
SECRETIVE = {
    one.id: names for one in OPERATIONS if (names := secret_members.names_of(one.document))
}
TELLING = {
    one.id: names for one in OPERATIONS if (names := secret_members.answered_by(one.document))
}
"""What is shown once, in the answer of whoever may have it."""
Act = Callable[[House, Person], list[str]]


@pytest.fixture(scope="module")
def sso_provider() -> Iterator[SsoProvider]:
    made = SsoProvider()
    yield made
    made.close()


def sign_in(house: House, person: Person) -> list[str]:
    body = {"email": person.email, "password": WRONG}
    is_problem(house.post("/v1/sessions", json=body), 401)
    body = {"email": person.email, "password": PASSWORD}
    assert house.post("/v1/sessions", json=body).status_code == 201
    return [WRONG, PASSWORD]


def sign_in_with_a_code(house: House, person: Person) -> list[str]:
    totp = enrolled(house, person)
    first, second = code(house, totp), code(house, totp, 1)
    body = {"email": person.email, "password": PASSWORD, "totp_code": second}
    assert house.post("/v1/sessions", json=body).status_code == 201
    return [first, second]


def step_up(house: House, person: Person) -> list[str]:
    totp = enrolled(house, person)
    first, second = code(house, totp), code(house, totp, 1)
    answer = house.post(STEP_UP, person.session, json={"code": second})
    assert answer.is_success, answer.text
    return [first, second]


def change_password(house: House, person: Person) -> list[str]:
    for current in (WRONG, PASSWORD):
        body = {"current_password": current, "new_password": NEW}
        house.post("/v1/me/password", person.session, json=body)
    return [WRONG, PASSWORD, NEW]


def enrol_twice(house: House, person: Person) -> list[str]:
    house.post("/v1/me/totp", person.session, json={"password": WRONG})
    enrol(house, person)
    return [WRONG, PASSWORD]


def create_account(house: House, _person: Person) -> list[str]:
    token = letters.invite(house, house.tenant(plan="team"), letters.new_email())
    for password in (NEW, WRONG):
        body = {"invite_token": token, "name": "New", "password": password}
        house.post("/v1/users", json=body)
    path = f"/v1/invites/{token}/accept"
    is_problem(house.post(path, house.person().session), 403, "wrong_email")
    return [token, NEW, WRONG]


def report_a_leak(house: House, person: Person) -> list[str]:
    key, _ = house.key(house.tenant().org_id, person, "owner")
    before = house.services.settings
    report(house, match(key))
    trust(house)
    assert report(house, match(key), match("canary-no-key-of-ours")).is_success
    object.__setattr__(house.services, "settings", before)
    house.settle()
    return [key, "canary-no-key-of-ours"]


def reset_the_password(house: House, person: Person) -> list[str]:
    token = letters.reset(house, person.email)
    for password in ("password1234", NEW, WRONG):
        body = {"reset_token": token, "password": password}
        house.post("/v1/password-resets/actions/complete", json=body)
    house.settle()
    return [token, NEW, WRONG]


def change_the_address(house: House, person: Person) -> list[str]:
    body = {"email": "elsewhere@example.com", "password": WRONG}
    is_problem(house.post("/v1/me/email", person.session, json=body), 403)
    token = letters.email_change(house, person, f"new.{person.email}")
    for by in (house.person(), person):
        house.post("/v1/me/email/actions/confirm", by.session, json={"email_token": token})
    house.settle()
    return [token, WRONG, PASSWORD]


def exchange(house: House, _person: Person) -> list[str]:
    tenant = house.tenant(plan="team")
    account = house.post(f"{tenant.path}/service-accounts", tenant.key, json={"name": "ci"}).json()
    trusted(house, tenant, account["id"])
    right, wrong = (
        house.issuer.token(house.now().timestamp(), **changed) for changed in ({}, {"aud": "else"})
    )
    path, body = "/v1/workload-identities/actions/exchange", {"service_account_id": account["id"]}
    assert house.post(path, json={**body, "token": right}).status_code == 201
    is_problem(house.post(path, json={**body, "token": wrong}), 403, "workload_not_trusted")
    is_problem(house.post(path, json={**body, "token": WRONG}), 401, "token_refused")
    return [right, wrong, right.rpartition(".")[2], WRONG]


def let_in(house: House, person: Person) -> list[str]:
    """A program, after a code that is wrong, and with one that nobody has begun."""
    begun = house.post("/v1/device-logins").json()
    told, code = [begun["user_code"], begun["device_code"]], {"user_code": begun["user_code"]}
    path = "/v1/device-logins/actions"
    wrong = {"user_code": "BBBB-BBBB"}
    is_problem(house.post(f"{path}/find", person.session, json=wrong), 404)
    is_problem(house.post(f"{path}/exchange", json={"device_code": "x" * 43}), 404)
    assert house.post(f"{path}/find", person.session, json=code).is_success
    decided = house.post(f"{path}/decide", person.session, json={**code, "decision": "approved"})
    assert decided.status_code == 204, decided.text
    opened = house.post(f"{path}/exchange", json={"device_code": begun["device_code"]})
    return [*told, str(opened.json()["token"])]


def ask_for_a_passkey(house: House, person: Person) -> list[str]:
    is_problem(house.post(OPTIONS, person.session, json={"password": WRONG}), 403)
    added(house, person)
    return [WRONG, PASSWORD]


def send_to_siem(house: House, person: Person) -> list[str]:
    """Made, refused, and sent of: both kinds of targets."""
    tenant = house.tenant()
    header = {"header_name": "Authorization", "header_value": f"Splunk {NEW}"}
    key = {"access_key_id": "canary-of-a-key", "secret_access_key": WRONG}
    webhook = {"kind": "webhook", "url": "https://siem.example.com/", **header}
    bucket = {"kind": "s3", "bucket": "audit", "region": "eu-central-1", **key}
    lanes = SiemLanes(house.services.sealer, Reach())
    secrets = [NEW, "canary-of-a-key", WRONG]
    path = f"{tenant.path}/audit/siem-deliveries"
    is_problem(house.post(path, person.session, json={"target": webhook}), 404)
    is_problem(house.post(path, tenant.key, json={"target": {**bucket, **header}}), 422)
    for target in (webhook, bucket):
        made = house.post(path, tenant.key, json={"target": target}).json()
        secrets += [made["signing_secret"]] if made["signing_secret"] else []
        with house.database.write() as db:
            audit_chain.seal(db, tenant.org_id, 100)
            lane = delivery_lanes.fetch(db, made["id"])
            batch = lanes.read(db, lane)
            assert batch is not None
            request = targets.request(house.services.sealer, batch, Reach())
            log_of_it = structlog.get_logger("siem")
            log_of_it.info("siem.sent", batch=batch, request=request)
            refused = Sent(batch.lines.to, is_full=False, error="the target answered 503")
            lanes.record(db, lane, refused)
        assert house.post(f"{path}/{made['id']}/actions/disable", tenant.key).is_success
        assert house.request("DELETE", f"{path}/{made['id']}", tenant.key).is_success
    return secrets


ACTS: dict[str, dict[str, Act]] = {
    "sso_connections.create": {"client_secret": connect},
    "sso_connections.update": {"client_secret": connect},
    "sso_sign_ins.complete": dict.fromkeys(("code", "state", "browser_token"), come_by_a_provider),
    "siem_deliveries.create": {
        "header_value": send_to_siem,
        "access_key_id": send_to_siem,
        "secret_access_key": send_to_siem,
    },
    "leak_reports.create": {"token": report_a_leak},
    "sessions.create": {"password": sign_in, "totp_code": sign_in_with_a_code},
    "sessions.step_up": {"code": step_up},
    "me.change_password": {"current_password": change_password, "new_password": change_password},
    "me.change_email": {"password": change_the_address},
    "me.confirm_email": {"email_token": change_the_address},
    "me.enrol_totp": {"password": enrol_twice},
    "passkeys.options": {"password": ask_for_a_passkey},
    "me.confirm_totp": {"code": step_up},
    "password_resets.complete": {"reset_token": reset_the_password, "password": reset_the_password},
    "saml.sign_in": dict.fromkeys(("saml_response", "relay_state", "browser_token"), come_by_saml),
    "device_logins.find": {"user_code": let_in},
    "device_logins.decide": {"user_code": let_in},
    "device_logins.exchange": {"device_code": let_in},
    "users.create": {"invite_token": create_account, "password": create_account},
    "workload_identities.exchange": {"token": exchange},
}


def test_every_secret_member_of_every_operation_is_tried() -> None:
    assert {name: set(acts) for name, acts in ACTS.items()} == SECRETIVE


@pytest.fixture
def log() -> Iterator[list[Any]]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    with structlog.testing.capture_logs() as captured:
        yield captured
    structlog.configure(**before)


@pytest.mark.parametrize("operation", ACTS)
def test_no_secret_is_found_again(house: House, operation: str, log: list[Any]) -> None:
    for act in ACTS[operation].values():
        secrets = set(act(house, house.person())) - {""}
        assert found_again(house, log, secrets) == set()
    assert log or operation != "sessions.create", "the log tells of a refused sign-in"


def test_what_answers_show_once_is_stated_here_again() -> None:
    assert {
        "api_keys.create": {"key"},
        "service_accounts.create": {"key"},
        "service_accounts.create_key": {"key"},
        "workload_identities.exchange": {"key"},
        "backups.download": {"url"},
        "console.open": {"url"},
        "credentials.reveal": {"url"},
        "credentials.rotate": {"url"},
        "device_logins.create": {"device_code", "user_code"},
        "sso_sign_ins.create": {"redirect_url", "browser_token"},
        "sso_sign_ins.complete": {"token"},
        "device_logins.exchange": {"token"},
        "instances.dump": {"url"},
        "instances.logs": {"url"},
        "me.confirm_totp": {"recovery_codes"},
        "me.enrol_totp": {"secret", "otpauth_uri"},
        "me.renew_recovery_codes": {"recovery_codes"},
        "migrations.create": {"source_url"},
        "migrations.source_url": {"url"},
        "passkeys.create": {"recovery_codes"},
        "passkeys.sign_in": {"token"},
        "saml.sign_in": {"token"},
        "scim_tokens.create": {"token"},
        "sessions.create": {"token"},
        "siem_deliveries.create": {"signing_secret"},
        "webhooks.create": {"secret"},
        "webhooks.rotate_secret": {"secret"},
    } == TELLING


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.id in TELLING], ids=str)
def test_what_is_shown_once_is_found_again_nowhere(
    house: House,
    shop: Estate,
    operation: Operation,
    log: list[Any],
    sso_provider: SsoProvider,
) -> None:
    owner = shop.tenant.owner
    token = house.issuer.token(house.now().timestamp())
    bodies = {
        "sessions.create": {"email": owner.email, "password": PASSWORD},
        "workload_identities.exchange": {
            "service_account_id": shop.service_account_id, "token": token,
        },
    }  # fmt: skip
    body = bodies.get(operation.id, ...)
    ids = shop.ids
    if operation.id == "migrations.source_url":
        waiting = house.instance(shop.tenant)
        migration_id = migrating(house, shop.tenant, waiting)
        ids |= {"instance_id": waiting, "migration_id": migration_id}
    by = house.session(owner.id, mfa=True)
    if operation.id == "me.confirm_totp":
        by = house.session((owner := house.person()).id)
        body = {"code": code(house, enrol(house, owner))}
    elif operation.id == "me.renew_recovery_codes":
        enrolled(house, owner := house.person())
        by = owner.session
    elif operation.id == "device_logins.exchange":
        body = {"device_code": approved(house, by)}
    elif operation.id.startswith("passkeys."):
        by, body = with_passkey(house, operation.id)
    elif operation.id == "saml.sign_in":
        body = coming_by_saml(house, shop.tenant)
    elif operation.id.startswith("sso_sign_ins."):
        body = coming(house, shop.tenant, sso_provider, operation.id)
    answer = send(house, operation, ids, by, body)
    assert answer.is_success, answer.text
    secrets = {one for name in TELLING[operation.id] for one in _named(answer.json(), name)}
    assert secrets
    # Nor what a URL is secret by.
    secrets |= {one.rpartition("/")[2] for one in secrets}
    assert found_again(house, log, secrets) == set()


def approved(house: House, by: str) -> str:
    """The code of a program that this session has let in."""
    begun = house.post("/v1/device-logins").json()
    body = {"user_code": begun["user_code"], "decision": "approved"}
    assert house.post("/v1/device-logins/actions/decide", by, json=body).is_success
    return str(begun["device_code"])


def with_passkey(house: House, operation_id: str) -> tuple[str, dict[str, Any]]:
    """Somebody, and what adds a passkey of theirs, or signs in with it."""
    person, maker = house.person(), Authenticator()
    if operation_id == "passkeys.create":
        options = asked(house, OPTIONS, person.session)
        return person.session, {"name": "Phone", "credential": maker.create(options)}
    added(house, person, maker)
    return person.session, {"credential": maker.get(asked(house, SIGN_IN_OPTIONS))}


@pytest.fixture(scope="module")
def shop(house: House) -> Estate:
    return estate(house)


def found_again(house: House, log: list[Any], secrets: set[str]) -> set[str]:
    """The tables in which one of them is, and the log: as a text, or within one if it is long."""
    long = {one for one in secrets if len(one) > SHORT}

    def holds(value: Any) -> bool:
        seen = set(_texts(value))
        return bool(seen & secrets) or any(one in text for text in seen for one in long)

    with house.database.read() as db:
        of = {
            table: db.connection().execute(select(table)) for table in Record.metadata.sorted_tables
        }
        found = {table.name for table, rows in of.items() if holds([list(row) for row in rows])}
    return found | ({"log"} if holds(log) else set())


def _named(value: Any, name: str) -> Iterator[str]:
    """The texts of the member of that name, wherever it is."""
    members = value.items() if isinstance(value, dict) else ()
    for each, inner in members:
        yield from _texts(inner) if each == name else _named(inner, name)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, bytes):
        yield value.decode("latin-1")
    elif isinstance(value, str):
        yield value
