"""Passkeys on the account pages: what a script would put into the forms, and what else could be."""

import html
import json
import re
from typing import Any

import pytest

from contract_tests.api import second_factor
from contract_tests.api.harness import House
from contract_tests.api.soft_authenticator import Authenticator
from contract_tests.pages.browsing import Browser, Page
from contract_tests.pages.test_walks import SIGN_IN, START, signed_in

FACTOR, PASSKEY, CODE = "/account/second-factor", "/account/passkey", "/account/code/passkey"


def options(page: Page) -> dict[str, Any]:
    """What the page has for its script."""
    (found,) = re.findall(r'data-options="([^"]*)"', page.response.text)
    told: dict[str, Any] = json.loads(html.unescape(found))
    return told


def add(browser: Browser, maker: Authenticator, name: str = "Phone") -> Page:
    page = browser.send(browser.get(FACTOR), "Add a passkey")
    assert page.title == "Add a passkey"
    credential = json.dumps(maker.create(options(page)))
    return browser.send(page, "Add a passkey", credential=credential, name=name)


def use(browser: Browser, page: Page, maker: Authenticator) -> Page:
    credential = json.dumps(maker.get(options(page)))
    return browser.send(page, "Use a passkey", credential=credential)


def test_one_is_added_used_renamed_and_removed(house: House, browser: Browser) -> None:
    person, maker = house.person(), Authenticator()
    signed_in(browser, person)
    page = add(browser, maker, "<b>Phone</b>")
    assert page.title == "Your recovery codes"
    page = browser.get(FACTOR)
    assert "&lt;b&gt;Phone&lt;/b&gt;" in page.response.text
    page = browser.send(page, "Sign out")
    page = use(browser, browser.get(page.links["Sign in with a passkey"]), maker)
    assert (page.path, page.title) == (START, "Your account")
    page = browser.send(browser.get(FACTOR), "Save the name", name=" Key ring ")
    assert "Key ring" in page.response.text
    page = browser.send(page, "Save the name", name="a\u202eb")
    assert page.status == 422
    assert page.texts["alert"].startswith("The name must")
    page = browser.send(page, "Remove")
    assert page.texts["status"].startswith("The passkey is removed.")
    page = browser.send(page, "Sign out")
    page = use(browser, browser.get(PASSKEY), maker)
    assert (page.status, page.title) == (401, "Sign in with a passkey")
    assert page.texts["alert"].startswith("This passkey is not known here")


def test_who_signs_in_by_password_is_asked_for_it(house: House, browser: Browser) -> None:
    person, maker = house.person(), Authenticator()
    signed_in(browser, person)
    add(browser, maker)
    browser = Browser(house)
    page = signed_in(browser, person)
    assert (page.path, page.title) == (CODE, "Use your passkey")
    weak = browser.get(FACTOR)
    assert [form.button for form in weak.forms] == ["Sign out", "Save the name"]
    page = browser.get(weak.links["Use your passkey"])
    assert page.path == f"{CODE}?next=second-factor"
    refused = use(browser, page, Authenticator(user_handle=maker.user_handle))
    assert refused.texts["alert"].startswith("This passkey cannot be used here")
    page = use(browser, refused, maker)
    assert page.path == FACTOR
    assert house.get("/v1/me", browser.cookies["menagerie-session"]).json()["assurance"] == "mfa"


@pytest.mark.parametrize("credential", ["", "{", "null", "[]", "5", '{"id": 1}', "[" * 5_000])
def test_what_is_no_passkey_is_refused(house: House, browser: Browser, credential: str) -> None:
    signed_in(other := Browser(house), house.person())
    page = browser.send(browser.get(PASSKEY), "Use a passkey", credential=credential)
    assert (page.status, page.texts["alert"]) == (422, "No passkey was given. Try again.")
    page = other.send(other.get(FACTOR), "Add a passkey")
    page = other.send(page, "Add a passkey", credential=credential, name="Phone")
    assert (page.status, page.title) == (422, "Second factor")


def test_a_script_is_on_the_pages_alone_that_use_one(house: House, browser: Browser) -> None:
    person = house.person()
    signed_in(browser, person)
    add(browser, Authenticator())
    adding = browser.send(browser.get(FACTOR), "Add a passkey")
    for page in (adding, browser.get(CODE), Browser(house).get(PASSKEY)):
        policy = page.response.headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert policy.startswith("default-src 'none'")
        assert page.response.text.count("<script") == 1
        assert 'type="password"' not in page.response.text
    for path in (FACTOR, START, "/account/password"):
        assert "script" not in browser.get(path).response.headers["content-security-policy"]
    assert "script" not in Browser(house).get(SIGN_IN).response.headers["content-security-policy"]


def test_an_old_session_gives_its_password_before(house: House, browser: Browser) -> None:
    person = house.person()
    signed_in(browser, person)
    house.pass_time(1_000)
    page = browser.send(browser.get(FACTOR), "Add a passkey")
    assert page.errors()["password"].startswith("Enter your password")
    page = browser.send(page, "Continue", password="wrong")
    assert page.errors() == {"password": "This is not your password."}
    second_factor.enrolled(house, person)
    page = browser.send(page, "Continue", password="wrong")
    assert page.path == "/account/code?next=second-factor"
