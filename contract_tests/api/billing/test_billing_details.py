"""Billing details: who may set them, what is refused, and that invoices have them."""

from typing import Any

import pytest

from contract_tests import invoicing as billing
from contract_tests import written
from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import is_problem
from menagerie import invoice_books

DETAILS: dict[str, Any] = {
    "name": "Difference Engines SARL",
    "street": "1 rue de Rivoli",
    "postcode": "75001",
    "city": "Paris",
    "country": "FR",
    "vat_number": "FR40303265045",
    "email": "accounts@example.com",
}
NOTHING: dict[str, Any] = dict.fromkeys(DETAILS)


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


def put(house: House, tenant: Tenant, **values: Any) -> Any:
    body = {**DETAILS, **values}
    return house.request("PUT", f"{tenant.path}/billing-details", tenant.key, json=body)


def test_they_are_replaced_and_audited(house: House, tenant: Tenant) -> None:
    path = f"{tenant.path}/billing-details"
    assert house.get(path, tenant.key).json() == NOTHING
    assert put(house, tenant).json() == DETAILS
    assert house.get(path, tenant.key).json() == DETAILS
    with house.database.read() as db:
        entry = written.audited(db, tenant.org_id)[0]
    assert (entry.action, entry.target) == ("billing_details.replace", tenant.org_id)
    assert entry.detail["changed"] == sorted(DETAILS)
    assert entry.detail["changes"]["country"] == {"from": None, "to": "FR"}
    assert "rue de Rivoli" not in str(entry.detail)
    # As the operator's command says it, and the other way round.
    told = invoice_books.set_customer(house.services, tenant.org_id, {"city": "Lyon"})
    assert "vat_id: FR40303265045" in told
    assert house.get(path, tenant.key).json() == {**DETAILS, "city": "Lyon"}
    assert put(house, tenant, **NOTHING).json() == NOTHING


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"vat_number": "FR40303265046"}, "/vat_number"),
        ({"vat_number": "DE136695976"}, "/vat_number"),
        ({"country": None}, "/country"),
        ({"country": "France"}, "/country"),
        ({"vat_number": "FR'; --"}, "/vat_number"),
        ({"street": "a\nb"}, "/street"),
        ({"city": "x" * 101}, "/city"),
        ({"email": "nobody"}, "/email"),
        ({"email": "a@example.com\r\nBcc: b@example.com"}, "/email"),
        ({"iban": "x"}, "/iban"),
    ],
)
def test_what_is_wrong_is_told_by_its_place(
    house: House, tenant: Tenant, values: dict[str, Any], pointer: str
) -> None:
    assert put(house, tenant).is_success
    refused = put(house, tenant, **values)
    is_problem(refused, 422, "invalid_request")
    assert pointer in {error["pointer"] for error in refused.json()["errors"]}
    assert house.get(f"{tenant.path}/billing-details", tenant.key).json() == DETAILS


def test_numbers_of_greece_and_of_elsewhere_are_taken(house: House, tenant: Tenant) -> None:
    for country, number in (("GR", "EL094259216"), ("CH", "CHE123456788"), ("US", None)):
        assert put(house, tenant, country=country, vat_number=number).is_success


def test_invoices_have_them_and_are_sent_there(make_house: MakeHouse) -> None:
    house = make_house()
    month = billing.starts_billing(house)
    tenant = house.tenant(plan="solo")
    assert put(house, tenant).is_success
    billing.billed(house, month)
    made = billing.invoice_of(house, tenant, month)
    assert (made.customer["name"], made.tax_category) == ("Difference Engines SARL", "AE")
    assert "accounts@example.com" in {letter.to for letter in house.letters.sent.values()}
    assert put(house, tenant, name="Another").is_success
    assert billing.invoice_of(house, tenant, month).customer["name"] == "Difference Engines SARL"


def test_roles_and_strangers(house: House, tenant: Tenant) -> None:
    path = f"{tenant.path}/billing-details"
    for role, read, write in (("admin", 200, 200), ("auditor", 200, 403), ("member", 403, 403)):
        session = house.member(tenant.org_id, role).session
        assert house.get(path, session).status_code == read
        assert house.request("PUT", path, session, json=DETAILS).status_code == write
    stranger = house.tenant().key
    is_problem(house.get(path, stranger), 404, "not_found")
    is_problem(house.request("PUT", path, stranger, json=DETAILS), 404, "not_found")
