"""What people do on the account pages, without scripts."""

import re
from urllib.parse import urlsplit

import pyotp

from contract_tests.api import letters, second_factor
from contract_tests.api.harness import PASSWORD, House, Person, Tenant
from contract_tests.pages.browsing import Browser, Page

START = "/account/"
SIGN_IN = "/account/sign-in"
INVITE = "/account/invite"
NEW_PASSWORD = "staple-of-nine-oaks"


def link_of_last(house: House) -> str:
    """The path and query of the only page that the letter which was sent last leads to."""
    house.settle()
    (link,) = re.findall(r"^ +(http\S+/account/\S+)$", house.letters.last.text, re.MULTILINE)
    parts = urlsplit(link)
    return f"{parts.path}?{parts.query}"


def invited(house: House, tenant: Tenant, email: str, role: str = "developer") -> str:
    letters.invite(house, tenant, email, role)
    return link_of_last(house)


def signed_in(browser: Browser, person: Person, password: str = PASSWORD) -> Page:
    page = browser.get(SIGN_IN)
    return browser.send(page, "Sign in", email=person.email, password=password)


def test_whoever_is_signed_out_signs_in_and_out(house: House, browser: Browser) -> None:
    person = house.person("Ada Lovelace")
    page = browser.get(START)
    assert (page.path, page.title) == (SIGN_IN, "Sign in")
    page = browser.send(page, "Sign in", email=f" {person.email} ", password=PASSWORD)
    assert (page.path, page.title) == (START, "Your account")
    assert "Ada Lovelace" in page.response.text
    assert person.email in page.response.text
    assert "Firefox on Linux" in page.response.text
    assert browser.get(SIGN_IN).path == START
    token = browser.cookies["menagerie-session"]
    assert house.get("/v1/me", token).status_code == 200
    page = browser.send(page, "Sign out")
    assert page.texts["status"] == "You are signed out."
    assert browser.cookies.keys() <= {"menagerie-form"}
    assert house.get("/v1/me", token).status_code == 401
    assert browser.get(START).title == "Sign in"


def test_the_letter_of_an_invite_leads_to_an_account(house: House, browser: Browser) -> None:
    tenant = house.tenant("Analytical <b>Engines</b>")
    link = invited(house, tenant, "grace@example.com")
    page = browser.get(link)
    assert page.title == "Accept an invitation"
    again = browser.send(page, "Create account and join", name="", password="short")
    assert again.status == 422
    assert again.errors() == {
        "name": "Enter your name.",
        "password": "Must have at least 12 characters.",
    }
    assert again.texts["title"].startswith("Error: ")
    given = {"name": "Grace Hopper", "password": NEW_PASSWORD}
    page = browser.send(again, "Create account and join", **given)
    assert page.path == f"{START}?done=account"
    assert "Analytical &lt;b&gt;Engines&lt;/b&gt;" in page.response.text
    assert "Your role: developer. Plan: team." in page.response.text
    me = house.get("/v1/me", browser.cookies["menagerie-session"]).json()
    assert me["user"]["email"] == "grace@example.com"
    other = Browser(house)
    again = other.send(other.get(link), "Create account and join", **given)
    assert (again.status, again.texts["alert"]) == (
        409,
        "This invitation has already been used. If it was you, sign in.",
    )


def test_a_form_that_is_sent_twice_acts_once(house: House, browser: Browser) -> None:
    page = browser.get(invited(house, house.tenant(), "twice@example.com"))
    given = {"name": "Twice", "password": NEW_PASSWORD}
    before = dict(browser.cookies)
    first = browser.send(page, "Create account and join", **given)
    token = browser.cookies["menagerie-session"]
    browser.cookies = before
    second = browser.send(page, "Create account and join", **given)
    assert first.path == second.path == f"{START}?done=account"
    assert browser.cookies["menagerie-session"] == token


def test_somebody_with_an_account_signs_in_and_accepts(house: House, browser: Browser) -> None:
    tenant, person = house.tenant("Difference"), house.person("Ada")
    link = invited(house, tenant, person.email, "auditor")
    page = browser.get(link)
    refused = browser.send(page, "Create account and join", name="Ada", password=NEW_PASSWORD)
    assert refused.status == 409
    assert refused.texts["alert"].startswith("There is an account with the email address")
    page = browser.get(page.links["Sign in to accept it"])
    page = browser.send(page, "Sign in", email=person.email, password=PASSWORD)
    assert urlsplit(page.path).path == INVITE
    assert person.email in page.response.text
    page = browser.send(page, "Join the organization")
    assert page.texts["status"] == "You are a member of the organization now."
    assert "Your role: auditor. Plan: team." in page.response.text


def test_an_invite_of_somebody_else_is_accepted_with_another_account(
    house: House, browser: Browser
) -> None:
    other, person = house.person(), house.person()
    link = invited(house, house.tenant(), person.email)
    signed_in(browser, other)
    page = browser.send(browser.get(link), "Join the organization")
    assert page.status == 403
    assert page.texts["alert"].startswith("This invitation was sent to another email address")
    page = browser.send(page, "Use another account")
    page = browser.send(page, "Sign in", email=person.email, password=PASSWORD)
    page = browser.send(page, "Join the organization")
    assert page.path == f"{START}?done=joined"


def test_a_session_that_ended_meanwhile_leads_back_to_the_invite(
    house: House, browser: Browser
) -> None:
    person = house.person()
    link = invited(house, house.tenant(), person.email)
    signed_in(browser, person)
    page = browser.get(link)
    house.request("DELETE", "/v1/sessions/current", browser.cookies["menagerie-session"])
    page = browser.send(page, "Join the organization")
    assert page.title == "Sign in"
    assert "menagerie-session" not in browser.cookies
    page = browser.send(page, "Sign in", email=person.email, password=PASSWORD)
    assert urlsplit(page.path).path == INVITE


def test_links_of_invites_that_are_no_more(house: House, browser: Browser) -> None:
    tenant = house.tenant()
    for wrong in ("", "?token=", "?token=mi_x", "?token=%3Cscript%3E", "?token=mi_" + "a" * 200):
        page = browser.get(f"{INVITE}{wrong}")
        assert (page.status, page.title) == (404, "This link is incomplete")
    given = {"name": "Nobody", "password": NEW_PASSWORD}
    part = f"{INVITE}?token=mi_{'a' * 20}"
    page = browser.send(browser.get(part), "Create account and join", **given)
    assert (page.status, page.title) == (404, "This link is incomplete")
    signed_in(other := Browser(house), house.person())
    page = other.send(other.get(part), "Join the organization")
    assert (page.status, page.forms[1:]) == (404, [])
    assert page.texts["alert"].startswith("There is no such invitation.")
    page = browser.get(f"{INVITE}?token=mi_{'a' * 49}")
    page = browser.send(page, "Create account and join", **given)
    assert page.status == 404
    assert page.forms == []
    link = invited(house, tenant, "gone@example.com")
    (invite,) = house.get(f"{tenant.path}/invites", tenant.key).json()["items"]
    house.request("DELETE", f"{tenant.path}/invites/{invite['id']}", tenant.key)
    page = browser.send(browser.get(link), "Create account and join", **given)
    assert page.texts["alert"].startswith("This invitation is no longer valid.")


def test_the_second_factor_is_set_up_asked_for_and_removed(house: House, browser: Browser) -> None:
    person = house.person()
    page = signed_in(browser, person)
    page = browser.get(page.links["Set up"])
    page = browser.send(page, "Set up an authenticator app")
    form = page.form("Turn on the second factor")
    totp = pyotp.parse_uri(form.values["uri"])
    assert isinstance(totp, pyotp.TOTP)
    assert page.response.text.count("<svg") == 1
    assert totp.secret in page.response.text.replace(" ", "")
    again = browser.send(page, "Turn on the second factor", code=second_factor.wrong(house, totp))
    assert (again.status, list(again.errors())) == (403, ["code"])
    assert again.form("Turn on the second factor").values["uri"] == form.values["uri"]
    code = second_factor.code(house, totp)
    page = browser.send(again, "Turn on the second factor", code=f"{code[:3]} {code[3:]}")
    assert page.title == "Your recovery codes"
    assert len(re.findall(r"<code>[0-9a-z]{4}(-[0-9a-z]{4}){3}</code>", page.response.text)) == 10

    browser = Browser(house)
    page = signed_in(browser, person)
    assert (page.path, page.title) == ("/account/code", "Enter a code")
    assert browser.get(page.links["Continue without a code"]).path == START
    assert browser.send(page, "Continue", code="12").errors()["code"] == (
        "Must be six digits, or a recovery code such as 4v8k-2m9x-hq3t-7wcn."
    )
    used = browser.send(page, "Continue", code=code)
    assert used.errors()["code"].startswith("This code is wrong or has already been used.")
    unverified = browser.get("/account/second-factor")
    assert "Remove the authenticator app" not in [form.button for form in unverified.forms]
    page = browser.get(unverified.links["Enter a code"])
    page = browser.send(page, "Continue", code=second_factor.code(house, totp, 1))
    assert page.path == "/account/second-factor"
    page = browser.send(page, "Remove the authenticator app")
    assert page.texts["status"] == "Your authenticator app is removed."
    assert house.get("/v1/me", person.session).json()["user"]["totp_enabled"] is False


def test_a_session_that_began_long_ago_needs_the_password_to_enrol(
    house: House, browser: Browser
) -> None:
    person = house.person()
    signed_in(browser, person)
    house.pass_time(1_000)
    page = browser.get("/account/second-factor")
    page = browser.send(page, "Set up an authenticator app")
    assert page.errors()["password"].startswith("Enter your password")
    page = browser.send(page, "Set up an authenticator app", password="wrong")
    assert page.errors() == {"password": "This is not your password."}
    page = browser.send(page, "Set up an authenticator app", password=PASSWORD)
    assert page.title == "Set up an authenticator app"


def test_sessions_are_listed_and_ended(house: House, browser: Browser) -> None:
    person = house.person()
    page = signed_in(browser, person)
    assert "203.0.113.7" in page.response.text
    buttons = [form for form in page.forms if form.button == "End"]
    assert len(buttons) == 1
    page = browser.send(page, "End")
    assert page.texts["status"] == "The session has ended."
    assert house.get("/v1/me", person.session).status_code == 401
    # What has passed the second factor is ended by what has passed it too.
    totp = second_factor.enrolled(house, Person(person.id, person.email, house.session(person.id)))
    page = browser.send(browser.get(START), "End")
    assert (page.status, page.texts["alert"]) == (
        403,
        "Enter a code from your authenticator app first.",
    )
    page = browser.get(page.links["Enter a code"])
    page = browser.send(page, "Continue", code=second_factor.code(house, totp, 1))
    page = browser.send(page, "End")
    assert page.texts["status"] == "The session has ended."


def test_a_session_of_somebody_else_is_not_ended(house: House, browser: Browser) -> None:
    mine, other = house.person(), house.person()
    (session,) = house.get("/v1/sessions", other.session).json()["items"]
    signed_in(browser, mine)
    form = browser.get(START).form("End")
    for wrong in (session["id"], "current", "../orgs", "ses_x", ""):
        browser.post(form.action, {**form.values, "session": wrong})
    assert house.get("/v1/me", other.session).status_code == 200
    assert browser.get(START).title == "Your account"
