"""The account pages in a browser: the walk of a newcomer, and each page as people may see it."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pyotp
import pytest
from selenium.webdriver.common.by import By

from contract_tests.api import second_factor
from contract_tests.api.harness import PASSWORD, Person
from contract_tests.databases import Databases
from contract_tests.end_to_end.chromium import (
    requests_of,
)
from contract_tests.pages.visiting import NEW_PASSWORD, Visitor, start_anew, visiting


@pytest.fixture(scope="module")
def visitor(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with visiting(databases, tmp_path_factory) as made:
        yield made


@pytest.fixture(autouse=True)
def _as_on_a_new_machine(visitor: Visitor) -> None:
    start_anew(visitor)


def invite(visitor: Visitor, email: str) -> str:
    house = visitor.house
    tenant = house.tenant("Analytical Engines")
    body = {"email": email, "role": "developer"}
    assert house.post(f"{tenant.path}/invites", tenant.key, json=body).status_code == 201
    return visitor.newest_link()


def turn_on_a_second_factor(visitor: Visitor) -> pyotp.TOTP:
    visitor.follow("Set up")
    visitor.sees("second-factor-none", "Second factor")
    visitor.press("Set up an authenticator app")
    visitor.sees("enrol", "Set up an authenticator app")
    shown = visitor.driver.find_element(By.CSS_SELECTOR, ".secret").text.replace(" ", "")
    totp = pyotp.TOTP(shown)
    visitor.enter(code=second_factor.wrong(visitor.house, totp))
    visitor.press("Turn on the second factor")
    visitor.sees("enrol-wrong", "Set up an authenticator app", error="This code is wrong")
    visitor.enter(code=second_factor.code(visitor.house, totp))
    visitor.press("Turn on the second factor")
    return totp


@pytest.mark.nightly
def test_a_newcomer_walks_from_the_letter_to_a_code(visitor: Visitor) -> None:
    link = invite(visitor, "grace@example.com")
    visitor.open(link)
    visitor.sees("invite", "Accept an invitation")
    visitor.press("Create account and join")
    visitor.sees("invite-empty", "Accept an invitation", error="Enter a password.")
    assert visitor.driver.switch_to.active_element.get_attribute("id") == "name"
    visitor.enter(name="Grace Hopper", password=NEW_PASSWORD)
    visitor.submit_by_keyboard()
    visitor.sees("account-new", "Your account")
    assert "Analytical Engines" in visitor.driver.page_source
    assert urlsplit(visitor.driver.current_url).query == "done=account"

    totp = turn_on_a_second_factor(visitor)
    visitor.sees("recovery-codes", "Your recovery codes")
    codes = [each.text for each in visitor.driver.find_elements(By.CSS_SELECTOR, ".codes code")]
    visitor.follow("I have kept them")
    visitor.sees("second-factor-on", "Second factor")

    visitor.press("Sign out")
    visitor.sees("signed-out", "Sign in")
    visitor.enter(email="grace@example.com", password=NEW_PASSWORD)
    visitor.submit_by_keyboard()
    visitor.sees("code", "Enter a code")
    visitor.enter(code="000")
    visitor.press("Continue")
    visitor.sees("code-wrong", "Enter a code", error="Must be six digits")
    visitor.enter(code=second_factor.code(visitor.house, totp, 1))
    visitor.press("Continue")
    visitor.sees("account", "Your account")
    visitor.open("/account/second-factor")
    visitor.press("Make new codes")
    visitor.sees("recovery-codes-new", "Your recovery codes")
    assert codes[0] not in visitor.driver.page_source
    visitor.follow("I have kept them")
    visitor.press("Remove the authenticator app")
    visitor.sees("second-factor-removed", "Second factor")

    visitor.open(link)
    visitor.press("Join the organization")
    visitor.sees("invite-used", "Accept an invitation", error="has already been used")
    asked = {urlsplit(one["url"]).netloc for one in requests_of(visitor.driver)}
    assert asked == {urlsplit(visitor.base).netloc}


@pytest.mark.nightly
def test_somebody_loses_their_password(visitor: Visitor) -> None:
    person = visitor.house.person("Katherine Johnson")
    visitor.open("/account/sign-in")
    visitor.follow("Forgot your password?")
    visitor.sees("reset", "Reset your password")
    visitor.press("Send the link")
    visitor.sees("reset-empty", "Reset your password", error="Enter your email address.")
    visitor.enter(email=person.email)
    visitor.submit_by_keyboard()
    visitor.sees("reset-asked", "Look at your email")
    link = visitor.newest_link()
    visitor.open(link)
    visitor.sees("reset-choose", "Choose a new password")
    visitor.enter(password="katherine johnson")
    visitor.press("Set the new password")
    visitor.sees("reset-weak", "Choose a new password", error="made of your name")
    visitor.enter(password=NEW_PASSWORD)
    visitor.submit_by_keyboard()
    visitor.sees("reset-done", "Sign in")
    visitor.open(link)
    visitor.enter(password=NEW_PASSWORD)
    visitor.press("Set the new password")
    visitor.sees("reset-used", "Choose a new password", error="has already been used")
    visitor.open("/account/reset?token=mp_")
    visitor.sees("reset-incomplete", "This link is incomplete")


@pytest.mark.nightly
def test_somebody_changes_their_password_and_their_address(visitor: Visitor) -> None:
    house = visitor.house
    person = house.person("Katherine Johnson")
    visitor.sign_in(person)
    visitor.open("/account/password")
    visitor.sees("password", "Change your password")
    visitor.enter(current_password=PASSWORD, new_password="aaaaaaaaaaaa")
    visitor.press("Change the password")
    visitor.sees("password-weak", "Change your password", error="too easy to guess")
    visitor.open("/account/email")
    visitor.sees("email", "Email address")
    visitor.enter(email=f"{'long' * 12}@example.com", password="wrong")
    visitor.press("Send the email")
    visitor.sees("email-wrong", "Email address", error="This is not your password.")
    visitor.enter(password=PASSWORD)
    visitor.press("Send the email")
    visitor.sees("email-asked", "Email address")
    visitor.open(link := visitor.newest_link())
    visitor.sees("email-confirm", "Confirm your email address")
    visitor.press("Confirm the address")
    visitor.sees("email-done", "Your account")
    visitor.open(link)
    visitor.press("Confirm the address")
    visitor.sees("email-used", "Confirm your email address", error="has already been used")
    visitor.open("/account/email?token=mv_")
    visitor.sees("email-incomplete", "This link is incomplete")

    session = house.session(person.id)
    totp = second_factor.enrolled(house, Person(person.id, person.email, session))
    visitor.open("/account/password")
    visitor.sees("password-unverified", "Change your password")
    visitor.follow("Enter a code")
    visitor.follow("Use a recovery code")
    visitor.sees("recovery-code", "Enter a code")
    visitor.enter(code="4v8k-2m9x-hq3t-7wcn")
    visitor.press("Continue")
    visitor.sees("recovery-code-wrong", "Enter a code", error="This code is wrong")
    assert totp.secret not in visitor.driver.page_source


@pytest.mark.nightly
def test_each_refusal_is_a_page_that_everybody_can_read(visitor: Visitor) -> None:
    house = visitor.house
    person = house.person("Wolfeschlegelsteinhausenbergerdorff Rhoshandiatellyneshiaunneveshenk")
    visitor.open("/account/sign-in")
    visitor.sees("sign-in", "Sign in")
    visitor.press("Sign in")
    visitor.sees("sign-in-empty", "Sign in", error="Enter your email address.")
    visitor.enter(email=person.email, password="wrong")
    visitor.press("Sign in")
    visitor.sees("sign-in-refused", "Sign in", error="The email address or the password is wrong.")

    visitor.open(invite(visitor, person.email))
    visitor.enter(name="Ada", password=NEW_PASSWORD)
    visitor.press("Create account and join")
    visitor.sees("invite-known", "Accept an invitation", error="There is an account")
    visitor.sign_in(person)
    visitor.open(invite(visitor, person.email))
    visitor.sees("invite-signed-in", "Accept an invitation")
    visitor.open(invite(visitor, "other@example.com"))
    visitor.press("Join the organization")
    visitor.sees("invite-other", "Accept an invitation", error="another email address")
    visitor.open("/account/invite?token=mi_")
    visitor.sees("invite-incomplete", "This link is incomplete")
    visitor.open("/account/nowhere")
    visitor.sees("nowhere", "Page not found")

    totp = second_factor.enrolled(house, person)
    visitor.open("/account/")
    visitor.press("End")
    visitor.sees("session-not-ended", "Your account", error="Enter a code")
    visitor.open("/account/second-factor")
    visitor.sees("second-factor-unverified", "Second factor")
    visitor.driver.delete_all_cookies()
    visitor.press("Sign out")
    visitor.sees("out-of-date", "This form is out of date")
    assert totp.secret not in visitor.driver.page_source

    late = house.person()
    visitor.sign_in(late)
    house.pass_time(1_000)
    visitor.open("/account/second-factor")
    visitor.press("Set up an authenticator app")
    visitor.sees("enrol-password", "Second factor", error="Enter your password")
    assert len(set(visitor.looked_at)) > 10
