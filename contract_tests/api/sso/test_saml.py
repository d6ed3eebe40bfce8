"""Signing in by SAML: whom the provider signs for comes in, once, in the browser that began it."""

from datetime import timedelta
from typing import Any

import pytest
from lxml import etree
from sqlalchemy import select

from contract_tests.api.harness import House, Tenant
from contract_tests.api.letters import new_email
from contract_tests.api.rows import is_problem
from contract_tests.api.sso import with_saml as saml
from contract_tests.saml import provider, sealing
from storage.events.audit import AuditEntry
from storage.sso import saml_assertions
from storage.sso.saml_assertions import SamlAssertion


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant("SAML", plan="team")


@pytest.fixture
def connection(house: House, tenant: Tenant) -> str:
    return saml.connect(house, tenant)


def refused(answer: Any, reason: str) -> None:
    is_problem(answer, 401, "saml_refused")
    assert answer.json()["reason"] == reason
    assert "token" not in answer.json()


def at_once(house: House, body: dict[str, str]) -> list[Any]:
    return house.together(*(("POST", saml.SESSIONS, None, {"json": body}) for _ in range(20)))


def members(house: House, tenant: Tenant) -> set[str]:
    found = house.get(f"{tenant.path}/members?limit=200", tenant.key).json()["items"]
    return {one["email"] for one in found}


def test_somebody_comes_in_and_is_a_member(house: House, tenant: Tenant, connection: str) -> None:
    email = new_email("ada")
    answer = saml.sign_in(house, connection, email)
    assert answer.status_code == 201, answer.text
    assert email in members(house, tenant)
    me = house.get("/v1/me", answer.json()["token"])
    assert me.status_code == 200
    assert me.json()["user"]["email"] == email
    with house.database.read() as db:
        rows = select(AuditEntry).where(AuditEntry.target == answer.json()["id"])
        [entry] = db.scalars(rows)
    assert (entry.action, entry.org_id) == ("session.create", tenant.org_id)
    assert entry.detail["connection_id"] == connection


def test_the_first_who_comes_verifies_the_connection(
    house: House, tenant: Tenant, connection: str
) -> None:
    path = f"{tenant.path}/enterprise/sso"
    assert house.get(path, tenant.key).json()["sso"]["status"] == "pending_verification"
    assert saml.sign_in(house, connection).status_code == 201
    assert house.get(path, tenant.key).json()["sso"]["status"] == "active"
    # What is recorded anew is to be proven anew.
    saml.connect(house, tenant)
    assert house.get(path, tenant.key).json()["sso"]["status"] == "pending_verification"


def test_a_response_opens_one_session(house: House, connection: str) -> None:
    begun = saml.begin(house, connection)
    response = saml.answered(house, begun, new_email())
    assert saml.send(house, begun, response).status_code == 201
    refused(saml.send(house, begun, response), "sign_in_unknown")


def test_twenty_at_once_open_one_session(house: House, connection: str) -> None:
    begun = saml.begin(house, connection)
    body = {**begun.body, "saml_response": saml.answered(house, begun, new_email())}
    answers = at_once(house, body)
    assert sorted(one.status_code for one in answers) == [201] + [401] * 19


def test_an_assertion_opens_one_session_whoever_brings_it(house: House, tenant: Tenant) -> None:
    """Begun by the provider, there is no sign-in here that it could be held to."""
    connection = saml.connect(house, tenant, allows_idp_initiated=True)
    begun = saml.Begun(connection, "", "", "")
    response = saml.answered(house, begun, new_email(), in_response_to="")
    assert saml.send(house, begun, response).status_code == 201
    refused(saml.send(house, begun, response), "replayed")
    body = {"connection_id": connection}
    other = saml.answered(house, begun, new_email(), in_response_to="")
    answers = at_once(house, {**body, "saml_response": other})
    assert sorted(one.status_code for one in answers) == [201] + [401] * 19


def test_the_provider_begins_nothing_unless_the_connection_allows_it(
    house: House, connection: str
) -> None:
    begun = saml.Begun(connection, "", "", "")
    response = saml.answered(house, begun, new_email(), in_response_to="")
    refused(saml.send(house, begun, response), "unsolicited")


def test_another_browser_gets_nothing(house: House, connection: str) -> None:
    """Whoever makes somebody's browser send their own response would sign it in as themselves."""
    begun, other = saml.begin(house, connection), saml.begin(house, connection)
    response = saml.answered(house, begun, new_email())
    for state, browser in (
        (begun.state, other.browser),
        (begun.state, ""),
        ("", begun.browser),
        (other.state[:-1], begun.browser),
    ):
        body = {**begun.body, "relay_state": state, "browser_token": browser}
        answer = house.post(saml.SESSIONS, json={**body, "saml_response": response})
        refused(answer, "sign_in_unknown" if state else "unsolicited")
    # And whoever's sign-in has begun gets nothing by a response to another.
    refused(saml.send(house, other, response), "in_response_to_wrong")
    assert saml.send(house, begun, response).status_code == 201


def test_a_response_for_one_connection_says_nothing_to_another(
    house: House, connection: str
) -> None:
    """Also where the same provider signs for both, as large ones do for many."""
    other = saml.connect(house, house.tenant("Other", plan="team"))
    begun, email = saml.begin(house, connection), new_email()
    theirs = saml.begin(house, other)
    response = saml.answered(house, begun, email)
    refused(saml.send(house, theirs, response), "destination_wrong")
    saml.change(
        house, other, settings={**saml.settings(house, other), "allows_idp_initiated": True}
    )
    mixed = {**begun.body, "connection_id": other, "saml_response": response}
    refused(house.post(saml.SESSIONS, json=mixed), "sign_in_unknown")


def test_ten_minutes_are_enough(house: House, connection: str) -> None:
    begun = saml.begin(house, connection)
    house.pass_time(601)
    refused(saml.send(house, begun, saml.answered(house, begun, new_email())), "sign_in_unknown")


def test_what_the_provider_did_not_sign_is_refused(house: House, connection: str) -> None:
    begun = saml.begin(house, connection)
    theirs = saml.signer(house, key=provider.OTHER.key)
    ours = saml.answered(house, begun, new_email())
    assertion = provider.signed_assertion(theirs, in_response_to=begun.request_id)
    root = provider.response(
        assertion, in_response_to=begun.request_id, destination=acs(connection)
    )
    refused(saml.send(house, begun, saml.encoded(root)), "signature_wrong")
    for text, reason in (("%%", "document_refused"), ("QUJD", "document_refused")):
        refused(saml.send(house, begun, text), reason)
    # Nothing of that has ended the sign-in.
    assert saml.send(house, begun, ours).status_code == 201


def acs(connection: str) -> str:
    return f"http://127.0.0.1:8080/account/sso/{connection}/acs"


def test_a_certificate_is_changed_while_people_sign_in(house: House, tenant: Tenant) -> None:
    old, new = saml.signer(house), saml.signer(house, key=provider.OTHER.key)
    connection = saml.connect(house, tenant)
    both = provider.metadata_xml(old, new).decode()
    shown = saml.put(house, tenant, metadata_xml=both).json()["saml"]
    assert len(shown["identity_provider"]["certificates"]) == 2
    assert saml.sign_in(house, connection).status_code == 201
    alone = provider.metadata_xml(new).decode()
    saml.put(house, tenant, metadata_xml=alone)
    refused(saml.sign_in(house, connection), "signature_wrong")


def test_a_certificate_that_has_expired_lets_nobody_in(house: House, connection: str) -> None:
    assert saml.sign_in(house, connection).status_code == 201
    house.pass_time(40 * 86_400)
    refused(saml.sign_in(house, connection), "certificate_expired")


def test_what_is_encrypted_is_opened_with_the_connections_key(house: House, tenant: Tenant) -> None:
    connection = saml.connect(house, tenant, wants_encrypted=True)
    refused(saml.sign_in(house, connection), "encryption_missing")
    shown = house.get(f"/v1/sso/saml/{connection}/metadata")
    begun = saml.begin(house, connection)
    plain = saml.decoded(saml.answered(house, begun, new_email()))
    assertion = plain.find("{urn:oasis:names:tc:SAML:2.0:assertion}Assertion")
    assert assertion is not None
    public = saml.certificates_of(shown.content)[-1].public_key()
    plain.replace(assertion, sealing.encrypted(etree.tostring(assertion), public))  # type: ignore[arg-type]
    assert saml.send(house, begun, saml.encoded(plain)).status_code == 201


def test_used_assertions_are_forgotten_once_nobody_would_take_them(
    house: House, connection: str
) -> None:
    assert saml.sign_in(house, connection).status_code == 201
    with house.database.read() as db:
        rows = select(SamlAssertion).where(SamlAssertion.connection_id == connection)
        [kept] = db.scalars(rows)
    assert (kept.expires_at - saml.moment(house)).total_seconds() > 300
    with house.database.write() as db:
        saml_assertions.forget_expired(db, kept.expires_at, 1_000)
        assert len(list(db.scalars(rows))) == 1
        saml_assertions.forget_expired(db, kept.expires_at + timedelta(seconds=1), 1_000)
        assert list(db.scalars(rows)) == []


def test_a_disabled_connection_lets_nobody_in(house: House, connection: str) -> None:
    begun = saml.begin(house, connection)
    response = saml.answered(house, begun, new_email())
    saml.change(house, connection, status="disabled")
    is_problem(saml.send(house, begun, response), 409, "sso_connection_disabled")
    saml.change(house, connection, status="active")
    assert saml.send(house, begun, response).status_code == 201


def test_a_connection_without_metadata_begins_nothing(house: House, tenant: Tenant) -> None:
    made = saml.put(house, tenant, allows_idp_initiated=True).json()["saml"]
    assert made["identity_provider"] is None
    body = {"connection_id": made["connection_id"], "saml_response": "PGEvPg=="}
    is_problem(house.post(saml.SESSIONS, json=body), 409, "saml_metadata_missing")


def test_metadata_is_public_and_is_of_saml_alone(house: House, connection: str) -> None:
    answer = house.get(f"/v1/sso/saml/{connection}/metadata")
    assert answer.headers["content-type"].startswith("application/samlmetadata+xml")
    root = etree.fromstring(answer.content)
    assert root.get("entityID") == f"http://127.0.0.1:8080/v1/sso/saml/{connection}/metadata"
    assert b"PRIVATE" not in answer.content
    saml.change(house, connection, kind="oidc")
    try:
        is_problem(house.get(f"/v1/sso/saml/{connection}/metadata"), 404, "not_found")
        body = {"connection_id": connection, "saml_response": "PGEvPg=="}
        is_problem(house.post(saml.SESSIONS, json=body), 404, "not_found")
    finally:
        saml.change(house, connection, kind="saml")


def test_nothing_of_a_response_is_in_the_log(
    house: House, connection: str, caplog: pytest.LogCaptureFixture
) -> None:
    begun, email = saml.begin(house, connection), new_email("secret")
    response = saml.answered(house, begun, email, audience="https://other.example")
    refused(saml.send(house, begun, response), "audience_wrong")
    assert email not in caplog.text
