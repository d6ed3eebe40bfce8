"""From an address to the identity provider of its organization, without scripts."""

import pytest

from contract_tests.api import second_factor
from contract_tests.api.harness import PASSWORD, House
from contract_tests.api.sso.with_domains import (
    Enforcing,
    at_domain,
    change,
    enforcing,
    member_at,
    verified,
)
from contract_tests.pages.browsing import Browser

SIGN_IN = "/account/sign-in"
SSO = "/account/sso"
LINK = "Continue to your identity provider"


@pytest.fixture
def made(house: House) -> Enforcing:
    return enforcing(house)


def test_an_address_leads_to_its_provider(house: House, browser: Browser) -> None:
    made = verified(house, house.tenant("Connected"))
    page = browser.get(browser.get(SIGN_IN).links["Sign in with single sign-on (SSO)"])
    assert page.title == "Sign in with single sign-on"
    page = browser.send(page, "Continue", email=f" Nobody@{made.domain.upper()} ")
    assert page.title == "Continue at your identity provider"
    start = f"{SSO}/{made.connection_id}?login_hint=Nobody@{made.domain.upper()}"
    assert page.links[LINK] == start
    assert f'content="0; url={start}"' in page.response.text


def test_an_address_without_one_is_told_so(house: House, browser: Browser) -> None:
    page = browser.send(browser.get(SSO), "Continue", email="ada@nowhere.example.com")
    assert "nowhere.example.com" in page.texts["alert"]
    assert page.form("Continue").values["email"] == "ada@nowhere.example.com"
    page = browser.send(page, "Continue", email="")
    assert page.errors() == {"email": "Enter your email address."}
    page = browser.send(page, "Continue", email="<script>@x")
    assert page.errors() == {"email": "Enter an email address such as ada@example.com."}
    assert "<script>" not in page.response.text
    assert house.person().email


def test_a_password_leads_there_too_where_it_is_enforced(
    house: House, browser: Browser, made: Enforcing
) -> None:
    person = member_at(house, made)
    page = browser.get(f"{SIGN_IN}?next=device")
    page = browser.send(page, "Sign in", email=person.email, password="anything")
    assert page.title == "Continue at your identity provider"
    hint = f"login_hint={person.email}"
    assert page.links[LINK] == f"{SSO}/{made.connection_id}?{hint}&next=device"
    assert "menagerie-session" not in browser.cookies


@pytest.mark.parametrize("after", ["//evil.example.com", "https://evil.example.com", "%0d%0ax", ""])
def test_nobody_is_led_elsewhere_after_it(
    house: House, browser: Browser, made: Enforcing, after: str
) -> None:
    page = browser.get(f"{SSO}?next={after}")
    page = browser.send(page, "Continue", email=f"ada@{made.domain}")
    assert page.links[LINK] == f"{SSO}/{made.connection_id}?login_hint=ada@{made.domain}"
    assert house.names.address


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_a_link_of_elsewhere_signs_nobody_in(
    house: House, browser: Browser, made: Enforcing, site: str
) -> None:
    """Its provider may be the attacker's, who would be who one is signed in as."""
    person = house.person("Ada")
    browser.send(browser.get(SIGN_IN), "Sign in", email=person.email, password=PASSWORD)
    before = dict(browser.cookies)
    start = f"{SSO}/{made.connection_id}"
    page = browser.ask_as_is("GET", start, {}, {"Sec-Fetch-Site": site})
    assert (page.status, page.links[LINK]) == (200, start)
    assert "http-equiv" not in page.response.text
    assert browser.cookies == before


@pytest.mark.parametrize("connection_id", ["x", "ssoc_", "ssoc_" + "0" * 27])
def test_what_is_no_connection_is_no_page(browser: Browser, connection_id: str) -> None:
    assert browser.get(f"{SSO}/{connection_id}").status == 404


def test_an_owner_signs_in_without_it(house: House, browser: Browser) -> None:
    tenant = house.tenant("Emergency")
    totp = second_factor.enrolled(house, tenant.owner)
    made = verified(house, tenant)
    owner = at_domain(house, tenant.owner, made.domain)
    assert change(house, tenant, made.domain_id, is_enforced=True).status_code == 200
    page = browser.send(browser.get(SIGN_IN), "Sign in", email=owner.email, password=PASSWORD)
    page = browser.get(page.links["Sign in without it"])
    typed = {"email": owner.email, "password": PASSWORD}
    refused = browser.send(page, "Sign in", **typed, code="")
    assert "code" in refused.errors()
    assert PASSWORD not in refused.response.text
    wrong = browser.send(page, "Sign in", **typed, code=second_factor.wrong(house, totp))
    assert wrong.texts["alert"] == "The email address, the password or the code is wrong."
    page = browser.send(page, "Sign in", **typed, code=second_factor.code(house, totp, 1))
    assert page.title == "Your account"
    admin = house.member(tenant.org_id, "admin")
    factor = second_factor.enrolled(house, admin)
    admin = at_domain(house, admin, made.domain)
    other = Browser(house)
    code = second_factor.code(house, factor, 1)
    typed = {"email": admin.email, "password": PASSWORD, "code": code}
    refused = other.send(other.get("/account/break-glass"), "Sign in", **typed)
    assert refused.status == 403
    assert "owners" in refused.texts["alert"]
    assert "menagerie-session" not in other.cookies


def test_whoever_asks_for_a_reset_is_led_there(
    house: House, browser: Browser, made: Enforcing
) -> None:
    page = browser.get("/account/reset")
    page = browser.post("/account/reset/ask", {**page.forms[0].values, "email": f"a@{made.domain}"})
    assert page.status == 403
    assert "single sign-on" in page.texts["alert"]
    assert house.names.address


def test_a_program_is_let_in_by_its_code(house: House, browser: Browser) -> None:
    begun = house.post("/v1/device-logins", headers={"User-Agent": "menagerie/1.0.0"}).json()
    person = house.person("Ada")
    page = browser.get("/account/device")
    assert (page.path, page.title) == (f"{SIGN_IN}?next=device", "Sign in")
    page = browser.send(page, "Sign in", email=person.email, password=PASSWORD)
    assert page.title == "Sign in a program"
    wrong = browser.send(page, "Continue", user_code="BBBB-BBBB")
    assert wrong.errors()["user_code"].startswith("No program waits with this code")
    wrong = browser.send(page, "Continue", user_code="12")
    assert wrong.errors()["user_code"].startswith("Enter the code")
    page = browser.send(page, "Continue", user_code=begun["user_code"].lower())
    assert page.title == "Sign this program in?"
    for shown in ("203.0.113.7", "Menagerie command line", person.email):
        assert shown in page.response.text
    form = page.forms[-1]
    exchange = {"device_code": begun["device_code"]}
    waiting = house.post("/v1/device-logins/actions/exchange", json=exchange)
    assert waiting.json()["code"] == "authorization_pending"
    page = browser.post(form.action, {**form.values, "decision": "approved"})
    assert page.texts["status"].startswith("The program is signed in.")
    opened = house.post("/v1/device-logins/actions/exchange", json=exchange)
    me = house.get("/v1/me", opened.json()["token"]).json()
    assert me["user"]["email"] == person.email


def test_a_program_is_refused_by_what_is_no_decision(house: House, browser: Browser) -> None:
    begun = house.post("/v1/device-logins").json()
    person = house.person("Ada")
    page = browser.get(f"{SIGN_IN}?next=device")
    page = browser.send(page, "Sign in", email=person.email, password=PASSWORD)
    # A link that names a code fills nothing in.
    assert (
        begun["user_code"]
        not in browser.get(f"/account/device?user_code={begun['user_code']}").response.text
    )
    page = browser.send(page, "Continue", user_code=begun["user_code"])
    form = page.forms[-1]
    page = browser.post(form.action, {**form.values, "decision": "yes"})
    assert page.texts["status"] == "The program is not signed in."
    body = {"device_code": begun["device_code"]}
    refused = house.post("/v1/device-logins/actions/exchange", json=body)
    assert (refused.status_code, refused.json()["code"]) == (403, "access_denied")
