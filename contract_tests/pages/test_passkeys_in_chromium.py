"""Passkeys in a browser, with an authenticator of its own."""

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.virtual_authenticator import VirtualAuthenticatorOptions
from selenium.webdriver.support.ui import WebDriverWait

from contract_tests.api.harness import Person
from contract_tests.databases import Databases
from contract_tests.end_to_end.chromium import (
    violations,
)
from contract_tests.pages.visiting import DEADLINE_S, Visitor, start_anew, visiting


@pytest.fixture(scope="module")
def visitor(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with visiting(databases, tmp_path_factory) as made:
        yield made


@pytest.fixture(autouse=True)
def _as_on_a_new_machine(visitor: Visitor) -> None:
    start_anew(visitor)


@pytest.fixture
def device(visitor: Visitor) -> Iterator[None]:
    """The browser's own: a phone whose owner has just shown their finger."""
    options = VirtualAuthenticatorOptions(
        protocol="ctap2", transport="internal", has_resident_key=True, is_user_verified=True
    )
    options.has_user_verification = True
    visitor.driver.add_virtual_authenticator(options)
    yield
    visitor.driver.remove_virtual_authenticator()


@pytest.mark.nightly
@pytest.mark.usefixtures("device")
def test_somebody_adds_a_passkey_and_signs_in_with_it(visitor: Visitor) -> None:
    house, driver = visitor.house, visitor.driver
    person = house.person("Mary Jackson")
    visitor.sign_in(person)
    visitor.open("/account/second-factor")
    visitor.press("Add a passkey")
    visitor.sees("passkey-add", "Add a passkey")
    assert driver.find_element(By.NAME, "name").get_attribute("value") == "Chrome on Linux"
    visitor.enter(name="Work laptop")
    visitor.press("Add a passkey")
    visitor.sees("passkey-codes", "Your recovery codes")
    visitor.follow("I have kept them")
    visitor.sees("passkey-added", "Second factor")
    assert "Work laptop" in driver.page_source
    visitor.press("Add a passkey")
    driver.find_element(By.XPATH, "//button[normalize-space()='Add a passkey']").click()
    told = WebDriverWait(driver, DEADLINE_S).until(
        lambda b: b.find_element(By.ID, "passkey-failure").text
    )
    assert told == "This device has a passkey for your account already."
    assert violations(driver, minor=True) == []

    visitor.press("Sign out")
    visitor.follow("Sign in with a passkey")
    visitor.sees("passkey", "Sign in with a passkey")
    visitor.press("Use a passkey")
    visitor.sees("passkey-signed-in", "Your account")
    token = driver.get_cookie("menagerie-session")
    assert token is not None
    assert house.get("/v1/me", token["value"]).json()["assurance"] == "mfa"

    visitor.press("Sign out")
    step_up_and_remove(visitor, person)


def step_up_and_remove(visitor: Visitor, person: Person) -> None:
    driver = visitor.driver
    visitor.sign_in(person)
    visitor.sees("passkey-code", "Use your passkey")
    visitor.follow("Use a recovery code")
    visitor.sees("passkey-recovery", "Enter a code")
    visitor.follow("Use a passkey")
    visitor.press("Use a passkey")
    visitor.open("/account/second-factor")
    driver.find_element(By.TAG_NAME, "summary").click()
    visitor.sees("passkey-rename", "Second factor")
    visitor.enter(name="")
    visitor.press("Save the name")
    visitor.sees("passkey-nameless", "Second factor", error="Enter a name.")
    driver.find_element(By.TAG_NAME, "summary").click()
    visitor.enter(name="Old laptop")
    visitor.press("Save the name")
    assert "Old laptop" in driver.page_source
    visitor.press("Remove")
    visitor.sees("passkey-removed", "Second factor")
    visitor.press("Sign out")
    visitor.follow("Sign in with a passkey")
    visitor.press("Use a passkey")
    visitor.sees("passkey-unknown", "Sign in with a passkey", error="not known here")
