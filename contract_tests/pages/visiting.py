"""Somebody at a browser, who looks at each page of theirs as everybody may see it."""

import mailbox
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

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
        found = self.driver.find_elements(By.CSS_SELECTOR, ".wrong, .failure")
        told = [one for one in found if one.is_displayed()]
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


@contextmanager
def visiting(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
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


def start_anew(visitor: Visitor) -> None:
    """As on a new machine."""
    visitor.open("/account/static/icon.svg")
    visitor.driver.delete_all_cookies()
    requests_of(visitor.driver)
    complaints(visitor.driver)
