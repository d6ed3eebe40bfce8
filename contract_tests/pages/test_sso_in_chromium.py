"""Signing in by a provider that is not ours, in a browser: from an address and back."""

import warnings
from collections.abc import Iterator

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.ui import WebDriverWait

from contract_tests.api import second_factor
from contract_tests.api.harness import PASSWORD, Tenant
from contract_tests.api.sso.with_domains import at_domain, change, claim, publish, verify
from contract_tests.databases import Databases
from contract_tests.end_to_end.chromium import complaints
from contract_tests.pages.visiting import DEADLINE_S, Visitor, start_anew, visiting

with warnings.catch_warnings():
    # It is built on what its own libraries have replaced.
    warnings.simplefilter("ignore")
    from oidc_provider_mock import User, run_server_in_thread

pytestmark = pytest.mark.nightly
DOMAIN = "walks.example.com"
GRACE, LINUS = f"grace@{DOMAIN}", f"linus@{DOMAIN}"


@pytest.fixture(scope="module")
def visitor(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with visiting(databases, tmp_path_factory) as made:
        yield made


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    people = [
        User(sub=name, claims={"email": email, "email_verified": True, "name": name.title()})
        for name, email in (("grace", GRACE), ("linus", LINUS))
    ]
    with run_server_in_thread(require_nonce=True, user_claims=people) as server:
        # Of another site than our pages, as a company's provider is.
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture(scope="module")
def tenant(visitor: Visitor, issuer: str) -> Tenant:
    """Of an organization that enforces single sign-on for DOMAIN."""
    house = visitor.house
    house.names.start()
    tenant = house.tenant("Analytical Engines")
    oidc = {"issuer": issuer, "client_id": "menagerie", "client_secret": "a secret of it"}
    path = f"{tenant.path}/sso/connections"
    made = house.post(path, tenant.key, json={"name": "Company", "oidc": oidc})
    assert made.status_code == 201, made.text
    claimed = claim(house, tenant, DOMAIN, connection_id=made.json()["id"])
    publish(house, claimed)
    assert verify(house, tenant, claimed)["status"] == "verified"
    assert change(house, tenant, claimed["id"], is_enforced=True).status_code == 200
    return tenant


@pytest.fixture(autouse=True)
def _as_on_a_new_machine(visitor: Visitor) -> None:
    start_anew(visitor)


def authorize(visitor: Visitor, sub: str) -> None:
    """At the provider, whose pages are not ours to look at."""
    leave_provider(visitor, sub)


def leave_provider(visitor: Visitor, button: str) -> None:
    reach_provider(visitor)
    visitor.press(button)
    # Of its own pages, which want styles from the internet.
    complaints(visitor.driver)


def reach_provider(visitor: Visitor) -> None:
    """By a page that leads on by itself."""
    heading = (By.TAG_NAME, "h1"), "Authorize Client"
    is_there = expected_conditions.text_to_be_present_in_element(*heading)
    WebDriverWait(visitor.driver, DEADLINE_S).until(is_there)


def test_an_address_leads_to_the_provider_and_back(visitor: Visitor, tenant: Tenant) -> None:
    visitor.open("/account/sign-in")
    visitor.follow("Sign in with single sign-on (SSO)")
    visitor.sees("sso", "Sign in with single sign-on")
    visitor.press("Continue")
    visitor.sees("sso-empty", "Sign in with single sign-on", error="Enter your email address.")
    visitor.enter(email="ada@nowhere.example.com")
    visitor.press("Continue")
    visitor.sees("sso-none", "Sign in with single sign-on", error="No organization has connected")
    visitor.enter(email=GRACE)
    visitor.press("Continue")
    authorize(visitor, "grace")
    visitor.sees("overview-sso", "Your account")
    assert GRACE in visitor.driver.page_source
    (session,) = [one for one in visitor.driver.get_cookies() if one["name"] == "menagerie-session"]
    assert visitor.house.get(f"{tenant.path}/projects", session["value"]).status_code == 200
    assert not [one for one in visitor.driver.get_cookies() if one["name"] == "menagerie-sso"]


def test_whoever_ends_it_there_is_told_so(visitor: Visitor, tenant: Tenant) -> None:
    assert tenant.org_id
    visitor.open("/account/sso")
    visitor.enter(email=GRACE)
    visitor.press("Continue")
    leave_provider(visitor, "Deny")
    visitor.sees("sso-denied", "Sign in with single sign-on", error="You ended the sign-in")


def test_the_way_back_is_good_in_one_browser_once(visitor: Visitor, tenant: Tenant) -> None:
    assert tenant.org_id
    visitor.open("/account/sso/callback?code=x&state=y")
    visitor.sees("sso-stranger", "Sign in with single sign-on", error=".")
    assert not [one for one in visitor.driver.get_cookies() if one["name"] == "menagerie-session"]


def test_a_program_is_signed_in_by_it(visitor: Visitor, tenant: Tenant) -> None:
    house = visitor.house
    begun = house.post("/v1/device-logins", headers={"User-Agent": "menagerie/1.0.0"}).json()
    visitor.open(begun["verification_url"])
    visitor.follow("Sign in with single sign-on (SSO)")
    visitor.enter(email=LINUS)
    visitor.press("Continue")
    authorize(visitor, "linus")
    visitor.sees("device", "Sign in a program")
    visitor.press("Continue")
    visitor.sees("device-empty", "Sign in a program", error="Enter the code")
    visitor.enter(user_code=begun["user_code"])
    visitor.press("Continue")
    visitor.sees("device-decide", "Sign this program in?")
    visitor.press("Sign it in")
    visitor.sees("device-done", "Sign in a program")
    body = {"device_code": begun["device_code"]}
    token = house.post("/v1/device-logins/actions/exchange", json=body).json()["token"]
    assert house.get("/v1/me", token).json()["user"]["email"] == LINUS
    assert house.get(f"{tenant.path}/projects", token).status_code == 200
    elsewhere = house.tenant("Elsewhere")
    assert house.get(f"{elsewhere.path}/projects", token).status_code == 404


def test_a_password_leads_to_the_provider_and_an_owner_past_it(
    visitor: Visitor, tenant: Tenant
) -> None:
    house = visitor.house
    owner = house.member(tenant.org_id, "owner")
    totp = second_factor.enrolled(house, owner)
    owner = at_domain(house, owner, DOMAIN)
    visitor.sign_in(owner)
    reach_provider(visitor)
    visitor.open("/account/break-glass")
    complaints(visitor.driver)
    visitor.sees("break-glass", "Sign in without single sign-on")
    visitor.enter(email=owner.email, password=PASSWORD, code=second_factor.code(house, totp, 1))
    visitor.press("Sign in")
    visitor.sees("overview-break-glass", "Your account")
