"""Accounts for addresses that nobody has shown: so many a day for an organization, and a place."""

import pytest
from sqlalchemy import select

from contract_tests.api.harness import House
from contract_tests.api.rows import is_problem
from contract_tests.api.sso import with_saml as saml
from contract_tests.api.sso.with_oidc import connected, new_domain, owning, sign_in
from contract_tests.sso_provider import SsoProvider
from contract_tests.workflows.known import take_turn
from control.sso import account_limits
from storage.sso import made_accounts
from storage.sso.made_accounts import SsoMadeAccount


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_limits, "OF_ORG_MAX", 3)
    monkeypatch.setattr(account_limits, "OF_PLACE_MAX", 1_000)


def test_an_organization_has_so_many_a_day_whatever_it_does(
    house: House, provider: SsoProvider
) -> None:
    tenant, domain = house.tenant(plan="enterprise"), new_domain()
    connection = connected(house, tenant, provider)
    for number in range(3):
        email = f"{number}@{domain}"
        assert sign_in(house, connection, provider, sub=email, email=email).status_code == 201
    refused = sign_in(house, connection, provider, sub="x", email=f"x@{domain}")
    is_problem(refused, 403, "sso_account_limit")
    assert "verify the domain" in refused.json()["detail"]
    # Whoever has come may come again; and another connection begins nothing anew.
    email = f"0@{domain}"
    assert sign_in(house, connection, provider, sub=email, email=email).status_code == 201
    path = f"{tenant.path}/sso/connections/{connection['id']}"
    assert house.request("DELETE", path, tenant.key).status_code == 204
    other = connected(house, tenant, provider)
    refused = sign_in(house, other, provider, sub="x", email=f"x@{domain}")
    is_problem(refused, 403, "sso_account_limit")
    with house.database.read() as db:
        from storage.access import users  # noqa: PLC0415

        assert users.by_email(db, f"x@{domain}") is None
    # By SAML alike; and in a domain that is the organization's own there is no such limit.
    by_saml = saml.connect(house, tenant)
    is_problem(saml.sign_in(house, by_saml, f"y@{domain}"), 403, "sso_account_limit")
    owning(house, tenant, domain)
    assert sign_in(house, other, provider, sub="x", email=f"x@{domain}").status_code == 201
    elsewhere = connected(house, house.tenant(), provider)
    assert sign_in(house, elsewhere, provider, email=f"z@{new_domain()}").status_code == 201


def test_tomorrow_there_are_as_many_again(house: House) -> None:
    tenant, domain = house.tenant(plan="enterprise"), new_domain()
    connection = saml.connect(house, tenant)
    for number in range(3):
        assert saml.sign_in(house, connection, f"{number}@{domain}").status_code == 201
    is_problem(saml.sign_in(house, connection, f"x@{domain}"), 403, "sso_account_limit")
    house.pass_time(account_limits.WITHIN.total_seconds() + 1)
    assert saml.sign_in(house, connection, f"x@{domain}").status_code == 201
    with house.database.write() as db:
        take_turn(db, "housekeeping")
    house.settle()
    with house.database.read() as db:
        begin = house.database.now(db) - 10 * account_limits.WITHIN
        assert made_accounts.of_org(db, tenant.org_id, begin) == 1


def test_a_place_has_so_many_a_day_in_all_organizations(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = house.tenant()
    assert saml.sign_in(house, saml.connect(house, first), f"a@{new_domain()}").status_code == 201
    with house.database.read() as db:
        rows = select(SsoMadeAccount.place).where(SsoMadeAccount.org_id == first.org_id)
        place, since = db.scalars(rows).one(), house.database.now(db) - account_limits.WITHIN
        before = made_accounts.of_place(db, place, since)
    monkeypatch.setattr(account_limits, "OF_PLACE_MAX", before + 2)
    for _ in range(2):
        connection = saml.connect(house, house.tenant())
        assert saml.sign_in(house, connection, f"a@{new_domain()}").status_code == 201
    connection = saml.connect(house, house.tenant())
    is_problem(saml.sign_in(house, connection, f"a@{new_domain()}"), 403, "sso_account_limit")


def test_at_once_they_are_no_more(house: House) -> None:
    connection = saml.connect(house, house.tenant(plan="enterprise"))
    bodies = []
    for number in range(8):
        begun = saml.begin(house, connection)
        response = saml.answered(house, begun, f"{number}@{new_domain()}")
        bodies.append({**begun.body, "saml_response": response})
    answers = house.together(*(("POST", saml.SESSIONS, None, {"json": body}) for body in bodies))
    assert sorted(one.status_code for one in answers) == [201] * 3 + [403] * 5
