"""What was sealed with a key that is not here: told as that, and mended by whoever can."""

from typing import Any

import pytest
from sqlalchemy import update

from contract_tests.api.harness import House
from contract_tests.api.letters import new_email
from contract_tests.api.rows import is_problem
from contract_tests.api.sso import with_oidc as oidc
from contract_tests.api.sso import with_saml as saml
from contract_tests.sso_provider import CLIENT_SECRET, SsoProvider
from storage.sso.sign_ins import SsoSignIn

LOST = b"sealed with a key that is not here"


def lose_sign_ins(house: House, connection_id: str) -> None:
    with house.database.write() as db:
        rows = update(SsoSignIn).where(SsoSignIn.connection_id == connection_id)
        db.execute(rows.values(sealed=LOST))


def test_a_saml_sign_in_that_cannot_be_opened_begins_anew(house: House) -> None:
    connection = saml.connect(house, house.tenant())
    begun = saml.begin(house, connection)
    lose_sign_ins(house, connection)
    answer = saml.send(house, begun, saml.answered(house, begun, new_email()))
    is_problem(answer, 401, "saml_refused")
    assert answer.json()["reason"] == "sign_in_unknown"
    assert saml.sign_in(house, connection).status_code == 201


def test_an_oidc_sign_in_that_cannot_be_opened_begins_anew(
    house: House, provider: SsoProvider
) -> None:
    connection = oidc.connected(house, house.tenant(), provider)
    begun = oidc.begin(house, connection)
    lose_sign_ins(house, connection["id"])
    code = provider.gives("lost", provider.signed(provider.claims(begun.nonce)))
    provider.asked.clear()
    answer = house.post(oidc.SESSIONS, json=oidc.returned(begun, code))
    is_problem(answer, 401, "sso_refused")
    assert "begin anew" in answer.json()["detail"]
    assert provider.asked == []
    email = f"a@{oidc.new_domain()}"
    assert oidc.sign_in(house, connection, provider, email=email).status_code == 201


def test_a_client_secret_that_cannot_be_opened_is_set_again(
    house: House, provider: SsoProvider
) -> None:
    tenant = house.tenant()
    connection = oidc.connected(house, tenant, provider)
    begun = oidc.begin(house, connection)
    saml.change(house, connection["id"], secrets_sealed=LOST)
    there = house.post(oidc.SIGN_INS, json={"connection_id": connection["id"]})
    back = house.post(oidc.SESSIONS, json=oidc.returned(begun, "code"))
    for answer in (there, back):
        is_problem(answer, 409, "sso_secret_unreadable")
        assert "set it again" in answer.json()["detail"]
    path = f"{tenant.path}/sso/connections/{connection['id']}"
    change = {"oidc": {"client_secret": CLIENT_SECRET}}
    mended = house.request("PATCH", path, tenant.owner.session, json=change)
    assert mended.status_code == 200, mended.text
    email = f"a@{oidc.new_domain()}"
    assert oidc.sign_in(house, connection, provider, email=email).status_code == 201


@pytest.mark.parametrize("choice", ["signs_requests", "wants_encrypted"])
def test_a_saml_key_that_cannot_be_opened_is_told(house: House, choice: str) -> None:
    """It signs requests and opens assertions; where it does neither, nobody needs it."""
    tenant = house.tenant()
    connection = saml.connect(house, tenant)
    saml.change(house, connection, secrets_sealed=LOST)
    assert saml.sign_in(house, connection).status_code == 201
    saml.connect(house, tenant, **{choice: True})
    is_problem(come(house, connection, choice), 409, "sso_secret_unreadable")


def come(house: House, connection: str, choice: str) -> Any:
    """As far as the key is needed: on the way there, or on the way back."""
    if choice == "signs_requests":
        return house.post("/v1/sso/sign-ins", json={"connection_id": connection})
    return saml.sign_in(house, connection)
