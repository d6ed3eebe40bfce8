"""Passwords, addresses and recovery codes on the account pages, without scripts."""

import re

import pyotp
import pytest

from contract_tests.api import letters, second_factor
from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.pages.browsing import Browser, Page
from contract_tests.pages.test_walks import NEW_PASSWORD, SIGN_IN, START, link_of_last, signed_in

RESET, EMAIL, CHANGE = "/account/reset", "/account/email", "/account/password"
CODE = re.compile(r"<code>([0-9a-z]{4}(?:-[0-9a-z]{4}){3})</code>")


def reset_link(house: House, browser: Browser, email: str) -> str:
    page = browser.get(browser.get(SIGN_IN).links["Forgot your password?"])
    assert page.path == RESET
    page = browser.send(page, "Send the link", email=f" {email} ")
    assert page.title == "Look at your email"
    return link_of_last(house)


def with_app(house: House, browser: Browser, person: Person) -> Page:
    """Set up on the pages; the page that then shows the codes."""
    signed_in(browser, person)
    page = browser.send(browser.get(f"{START}second-factor"), "Set up an authenticator app")
    totp = pyotp.parse_uri(page.form("Turn on the second factor").values["uri"])
    assert isinstance(totp, pyotp.TOTP)
    code = second_factor.code(house, totp)
    return browser.send(page, "Turn on the second factor", code=code)


def test_a_lost_password_is_replaced_by_a_link(house: House, browser: Browser) -> None:
    person = house.person("Grace Hopper")
    signed_in(elsewhere := Browser(house), person)
    link = reset_link(house, browser, person.email)
    page = browser.get(link)
    assert page.title == "Choose a new password"
    for weak, said in (
        ("", "Enter a password."),
        ("short", "Must have at least 12 characters."),
        ("grace hopper", "This password is too easy to guess: it is made of your name"),
    ):
        page = browser.send(page, "Set the new password", password=weak)
        assert page.status == 422
        assert page.errors()["password"].startswith(said)
        assert page.form("Set the new password").values["password"] == ""
    page = browser.send(page, "Set the new password", password=NEW_PASSWORD)
    assert (page.path, page.texts["status"]) == (
        f"{SIGN_IN}?done=reset",
        "Your password is changed. Sign in with the new one.",
    )
    assert elsewhere.get(START).title == "Sign in"
    assert signed_in(browser, person).errors() == {}
    assert signed_in(Browser(house), person, NEW_PASSWORD).path == START
    again = Browser(house)
    page = again.send(again.get(link), "Set the new password", password=NEW_PASSWORD)
    assert (page.status, page.forms) == (409, [])
    assert page.texts["alert"].startswith("This link has already been used.")
    assert page.links["Ask for another email"] == RESET


def test_who_has_no_account_reads_the_same_page(house: House, browser: Browser) -> None:
    pages = []
    for email in (house.person().email, "nobody-at-all@example.com"):
        browser = Browser(house)
        page = browser.send(browser.get(RESET), "Send the link", email=email)
        pages.append((page.status, page.path, page.response.text))
    house.settle()
    assert pages[0] == pages[1]
    for wrong, said in (("", "Enter your email address."), ("no address", "Must be")):
        page = browser.send(browser.get(RESET), "Send the link", email=wrong)
        assert page.status == 422
        assert page.errors()["email"].startswith(said)


@pytest.mark.parametrize("page", [RESET, EMAIL])
def test_links_that_were_copied_in_part_say_so(house: House, browser: Browser, page: str) -> None:
    signed_in(browser, house.person())
    prefix = "mp_" if page == RESET else "mv_"
    others = "mv_" if page == RESET else "mp_"
    wrong_tokens = ("", "x", "%3Cscript%3E", prefix, f"{prefix}{'a' * 200}", f"{others}{'a' * 49}")
    for wrong in (*wrong_tokens, f"mi_{'a' * 49}"):
        answer = browser.get(f"{page}?token={wrong}")
        assert (answer.status, answer.title) == (404, "This link is incomplete"), wrong
        assert page in answer.links.values()
    button = "Set the new password" if page == RESET else "Confirm the address"
    form = browser.get(f"{page}?token={prefix}{'a' * 49}").form(button)
    values = {**form.values, "password": NEW_PASSWORD}
    for token in (f"{prefix}{'a' * 20}", "", "'; --", f"{prefix}{'a' * 20_0}"):
        answer = browser.post(form.action, {**values, "token": token})
        assert (answer.status, answer.title) == (404, "This link is incomplete"), token
    answer = browser.post(form.action, values)
    assert answer.status == 404
    assert button not in [form.button for form in answer.forms]


def test_twenty_forms_of_one_link_set_one_password(house: House, browser: Browser) -> None:
    person = house.person()
    link = reset_link(house, browser, person.email)
    requests = []
    for n in range(20):
        form = browser.get(link).form("Set the new password")
        typed = {**form.values, "password": f"{NEW_PASSWORD}-{n}"}
        requests.append(browser.as_request(form.action, typed))
    # An address has few places, so that some are turned away at once.
    statuses = [answer.status_code for answer in house.together(*requests)]
    assert statuses.count(303) == 1
    assert set(statuses) <= {303, 409, 429}


def test_a_password_is_changed_by_who_knows_it(house: House, browser: Browser) -> None:
    person = house.person("Ada Lovelace")
    page = signed_in(browser, person)
    page = browser.get(CHANGE)
    page = browser.send(page, "Change the password")
    assert page.errors() == {"current_password": "Enter your current password."} | {
        "new_password": "Enter a new password."
    }
    typed = {"current_password": "wrong-" + PASSWORD, "new_password": NEW_PASSWORD}
    page = browser.send(page, "Change the password", **typed)
    assert page.errors() == {"current_password": "This is not your password."}
    typed = {"current_password": PASSWORD, "new_password": "lovelace-ada-"}
    page = browser.send(page, "Change the password", **typed)
    assert page.errors()["new_password"].startswith("This password is too easy to guess: it is")
    assert not {PASSWORD, "lovelace-ada-"} & set(page.form("Change the password").values.values())
    typed["new_password"] = NEW_PASSWORD
    page = browser.send(page, "Change the password", **typed)
    assert page.path == f"{START}?done=password"
    assert house.get("/v1/me", person.session).status_code == 401
    assert browser.get(START).title == "Your account"


def test_an_address_is_changed_by_a_link(house: House, browser: Browser) -> None:
    person = house.person()
    page = signed_in(browser, person)
    page = browser.send(browser.get(EMAIL), "Send the email", email="", password="")
    assert page.errors() == {"email": "Enter your email address.", "password": "Enter a password."}
    typed = {"email": " ada.new@example.com ", "password": "wrong"}
    page = browser.send(page, "Send the email", **typed)
    assert page.errors() == {"password": "This is not your password."}
    assert page.form("Send the email").values["email"] == " ada.new@example.com "
    page = browser.send(page, "Send the email", **{**typed, "password": PASSWORD})
    assert page.path == f"{EMAIL}?done=asked"
    link = link_of_last(house)

    # A browser in which nobody is signed in asks who it is, and goes on.
    other = Browser(house)
    page = other.get(link)
    assert page.title == "Sign in"
    stranger = house.person()
    page = other.send(page, "Sign in", email=stranger.email, password=PASSWORD)
    assert page.path == link
    page = other.send(page, "Confirm the address")
    assert page.status == 404
    assert page.texts["alert"].startswith("No such link was sent to this account.")
    page = other.send(other.get(link), "Use another account")
    page = other.send(page, "Sign in", email=person.email, password=PASSWORD)
    page = other.send(page, "Confirm the address")
    assert page.path == f"{START}?done=email"
    assert "ada.new@example.com" in page.response.text
    page = browser.send(browser.get(link), "Confirm the address")
    assert (page.status, page.texts["alert"][:31]) == (409, "This link has already been used")


def test_a_session_that_ended_meanwhile_leads_back_to_the_link(
    house: House, browser: Browser
) -> None:
    person = house.person()
    letters.email_change(house, person, "later@example.com")
    link = link_of_last(house)
    signed_in(browser, person)
    page = browser.get(link)
    house.request("DELETE", "/v1/sessions/current", browser.cookies["menagerie-session"])
    page = browser.send(page, "Confirm the address")
    assert page.title == "Sign in"
    page = browser.send(page, "Sign in", email=person.email, password=PASSWORD)
    assert page.path == link


def test_recovery_codes_are_shown_once_and_renewed(house: House, browser: Browser) -> None:
    person = house.person()
    page = with_app(house, browser, person)
    codes = CODE.findall(page.response.text)
    assert (page.title, len(set(codes))) == ("Your recovery codes", 10)
    assert page.response.headers["cache-control"] == "no-store"
    page = browser.get(page.links["I have kept them"])
    assert "10 codes are left." in page.response.text
    assert not CODE.findall(page.response.text)

    other = Browser(house)
    page = signed_in(other, person)
    page = other.get(page.links["Use a recovery code"])
    page = other.send(page, "Continue", code="4v8k-2m9x-hq3t-7wcn")
    assert page.errors()["code"].startswith("This code is wrong")
    assert "Use your authenticator app" in page.links
    page = other.send(page, "Continue", code=f" {codes[0].upper()} ")
    assert page.path == START
    page = other.get(f"{START}second-factor")
    assert "9 codes are left." in page.response.text
    page = other.send(page, "Make new codes")
    renewed = CODE.findall(page.response.text)
    assert len(set(renewed) - set(codes)) == 10

    third = Browser(house)
    page = third.get(signed_in(third, person).links["Use a recovery code"])
    page = third.send(page, "Continue", code=codes[1])
    assert page.errors()["code"].startswith("This code is wrong")
    unverified = third.get(f"{START}second-factor")
    assert "Make new codes" not in [form.button for form in unverified.forms]


def test_who_has_an_app_gives_a_code_before_changing_either(house: House, browser: Browser) -> None:
    person = house.person()
    totp = second_factor.enrolled(house, person)
    signed_in(browser, person)
    for path in (CHANGE, EMAIL):
        page = browser.get(path)
        assert [form.button for form in page.forms] == ["Sign out"]
        assert page.links["Enter a code"] == f"/account/code?next={path.rpartition('/')[2]}"
    page = browser.get(browser.get(CHANGE).links["Enter a code"])
    page = browser.send(page, "Continue", code=second_factor.code(house, totp, 1))
    assert page.path == CHANGE
    house.pass_time(1_000)
    typed = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    page = browser.send(page, "Change the password", **typed)
    assert page.path == "/account/code?next=password"
