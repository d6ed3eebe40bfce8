"""The account pages in a browser: the walk of a newcomer, and each page as people may see it."""

import mailbox
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyotp
import pytest
import uvicorn
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from contract_tests.api import second_factor
from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.databases import Databases
from contract_tests.end_to_end.chromium import (
    chromium,
    complaints,
    is_dark,
    prefer,
    requests_of,
    skip_without,
    violations,
)
from contract_tests.kept_port import KeptPort
from contract_tests.pages.houses import another
from control.mail import Maildir

DEADLINE_S = 60
NEW_PASSWORD = "staple-of-nine-oaks"
DESKTOP, PHONE = (1200, 900), (360, 740)
# Wider than the window, or one over another.
MISPLACED = """
    const seen = Array.from(document.querySelectorAll(
        'h1, h2, p, label, input:not([type=hidden]), button, dt, dd, a, svg')).filter(
        each => each.checkVisibility());
    const boxes = seen.map(each => [each, each.getBoundingClientRect()]);
    const wide = boxes.filter(([, box]) => box.left < 0 || box.right > innerWidth + 0.5);
    const over = boxes.filter(([one, a]) => boxes.some(([other, b]) =>
        one !== other && !one.contains(other) && !other.contains(one)
        && a.left < b.right - 1 && b.left < a.right - 1
        && a.top < b.bottom - 1 && b.top < a.bottom - 1));
    return [...wide, ...over].map(([each]) => each.outerHTML.slice(0, 200));
"""


class Visitor:
    """Somebody at the browser, at whom `looks_right` is asked on each page."""

    def __init__(self, driver: Chrome, house: House, base: str, mail: Path) -> None:
        self.driver, self.house, self.base, self.mail = driver, house, base, mail
        self.looked_at: list[str] = []

    def open(self, path: str) -> None:
        self.driver.get(path if path.startswith("http") else f"{self.base}{path}")

    def enter(self, **typed: str) -> None:
        for name, text in typed.items():
            field = self.driver.find_element(By.NAME, name)
            field.clear()
            field.send_keys(text)

    def press(self, button: str) -> None:
        """Until the page that it leads to is there."""
        here = self.driver.find_element(By.TAG_NAME, "html")
        path = f"//button[normalize-space()='{button}']"
        self.driver.find_element(By.XPATH, path).click()
        self._leave(here)

    def follow(self, link: str) -> None:
        here = self.driver.find_element(By.TAG_NAME, "html")
        self.driver.find_element(By.LINK_TEXT, link).click()
        self._leave(here)

    def submit_by_keyboard(self) -> None:
        here = self.driver.find_element(By.TAG_NAME, "html")
        self.driver.switch_to.active_element.send_keys(Keys.ENTER)
        self._leave(here)

    def _leave(self, page: object) -> None:
        loaded = "return document.readyState === 'complete'"
        WebDriverWait(self.driver, DEADLINE_S).until(
            lambda b: b.find_element(By.TAG_NAME, "html") != page and b.execute_script(loaded)
        )

    def sees(self, name: str, heading: str, *, error: str = "") -> None:
        """It is this page, and as it should be for everybody: in either scheme, at any width."""
        assert self.driver.find_element(By.TAG_NAME, "h1").text == heading
        told = self.driver.find_elements(By.CSS_SELECTOR, ".wrong, .failure")
        assert bool(told) == bool(error), [one.text for one in told]
        if error:
            assert error in " ".join(one.text for one in told)
            assert self.driver.title.startswith("Error: ")
        for scheme in ("light", "dark"):
            prefer(self.driver, scheme)
            for size in (PHONE, DESKTOP):
                self._resize(*size)
                self.looks_right(f"{name}-{scheme}-{size[0]}", scheme)
        self.looked_at.append(name)

    def looks_right(self, name: str, scheme: str) -> None:
        assert is_dark(self.driver) == (scheme == "dark"), name
        assert violations(self.driver, minor=True) == [], name
        assert self.driver.execute_script(MISPLACED) == [], name
        assert complaints(self.driver) == [], name

    def sign_in(self, person: Person, password: str = PASSWORD) -> None:
        self.open("/account/sign-in")
        self.enter(email=person.email, password=password)
        self.press("Sign in")

    def newest_link(self) -> str:
        """Of the letter in the folder of mail."""
        self.house.settle()
        box = mailbox.Maildir(self.mail)
        newest = max(box.keys())
        text = box[newest].get_payload(decode=True)
        assert isinstance(text, bytes)
        (link,) = re.findall(r"http\S+/account/\S+", text.decode())
        return str(link)

    def _resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.fixture(scope="module")
def visitor(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    skip_without()
    folder = tmp_path_factory.mktemp("h")
    mail = Maildir(folder / "mail", "Menagerie <menagerie@example.org>")
    with KeptPort() as port, House(databases.migrated("sqlite"), folder) as house:
        base = f"http://localhost:{port.number}"
        with another(house, folder, mailer=mail, base_url=base):
            config = uvicorn.Config(house.app, port=port.number, log_config=None, lifespan="off")
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, daemon=True)
            thread.start()
            with chromium(tmp_path_factory.mktemp("profile")) as driver:
                yield Visitor(driver, house, base, folder / "mail")
            server.should_exit = True
            thread.join(DEADLINE_S)


@pytest.fixture(autouse=True)
def _as_on_a_new_machine(visitor: Visitor) -> None:
    visitor.open("/account/static/icon.svg")
    visitor.driver.delete_all_cookies()
    requests_of(visitor.driver)
    complaints(visitor.driver)


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
    assert len(set(visitor.looked_at)) > 20
