"""Whose account is guessed at: their organizations are told, once, and strangers learn nothing."""

from typing import Any

import pytest
from sqlalchemy import func, select

from contract_tests.api import second_factor
from contract_tests.api.access.test_guessing import crowd
from contract_tests.api.harness import PASSWORD, House, Tenant
from control.boundary.windows import LibraryMeter, LocalWindows
from storage.access import memberships
from storage.work import Work


@pytest.fixture(autouse=True)
def _limited(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house.services.limiter, "_meter", LibraryMeter(LocalWindows()))


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant()


def told(house: House, tenant: Tenant) -> list[tuple[str, str, int]]:
    house.settle()
    path = f"{tenant.path}/alerts?kind=sign_ins_refused"
    found: list[dict[str, Any]] = house.get(path, tenant.key).json()["items"]
    title = f"too many sign-ins to the account of {tenant.owner.email} failed"
    assert all(one["title"] == title for one in found)
    return [(one["kind"], one["severity"], one["occurrences"]) for one in found]


def test_each_organization_of_the_person_is_told_of_wrong_passwords(
    house: House, tenant: Tenant
) -> None:
    other, stranger = house.tenant(), house.tenant()
    with house.database.write() as db:
        memberships.create(db, other.org_id, tenant.owner.id, "member")
    crowd(house, tenant.owner.email, 10)
    assert told(house, tenant) == []
    crowd(house, tenant.owner.email, 20)
    assert told(house, tenant) == [("sign_ins_refused", "warning", 1)]
    path = f"{other.path}/alerts"
    assert len(house.get(path, other.key).json()["items"]) == 1
    assert house.get(f"{stranger.path}/alerts", stranger.key).json()["items"] == []


def test_wrong_codes_after_the_right_password_are_critical(house: House, tenant: Tenant) -> None:
    totp = second_factor.enrolled(house, tenant.owner)
    wrong = second_factor.wrong(house, totp)
    crowd(house, tenant.owner.email, 13, password=PASSWORD, totp_code=wrong)
    # The right password is refused as well, once it was tried too often.
    assert ("sign_ins_refused", "critical") in {each[:2] for each in told(house, tenant)}


def test_of_an_account_that_is_not_there_as_much_is_done(house: House, tenant: Tenant) -> None:
    """Else the time that it takes would tell which accounts there are."""

    def begun() -> int:
        with house.database.read() as db:
            rows = select(func.count()).select_from(Work).where(Work.kind == "alerts.sign_ins")
            return db.scalars(rows).one()

    before = begun()
    crowd(house, "nobody@example.com")
    assert begun() == before + 1
    crowd(house, tenant.owner.email)
    assert begun() == before + 2
