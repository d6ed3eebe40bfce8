"""The API reference in a browser: the real document, requests sent from it, nothing elsewhere."""

import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import uvicorn
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from contract_tests.api.harness import House
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

DEADLINE_S = 60
CREATE = "#tag/api-keys/POST/v1/orgs/{org_id}/api-keys"


@pytest.fixture(scope="module")
def house(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[House, str]]:
    """The control plane's API within this process, and where it listens."""
    skip_without()
    with KeptPort() as port, House(databases.migrated("sqlite"), tmp_path_factory.mktemp("h")) as h:
        config = uvicorn.Config(h.app, port=port.number, log_config=None, lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        yield h, f"http://127.0.0.1:{port.number}"
        server.should_exit = True
        thread.join(DEADLINE_S)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    skip_without()
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def shown(browser: Chrome, selector: str, text: str = "") -> WebElement:
    """The first one that can be seen and has this text, once there is one."""
    script = """return Array.from(document.querySelectorAll(arguments[0])).find(
        each => each.checkVisibility() && each.textContent.includes(arguments[1]))"""
    found: WebElement = WebDriverWait(browser, DEADLINE_S).until(
        lambda b: b.execute_script(script, selector, text)
    )
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
    return found


def try_once(browser: Chrome) -> dict[str, str]:
    """Sends what the client that is open shows; the headers it sent."""
    requests_of(browser)
    shown(browser, "[role=dialog] button", "Send post request").click()
    sent = WebDriverWait(browser, DEADLINE_S).until(
        lambda b: [one for one in requests_of(b) if one["method"] == "POST"]
    )
    return {name.lower(): value for name, value in sent[0]["headers"].items()}


@pytest.mark.nightly
def test_the_front_page_says_what_this_is_to_people(
    house: tuple[House, str], browser: Chrome
) -> None:
    api, base = house
    for scheme in ("light", "dark"):
        prefer(browser, scheme)
        browser.get(base)
        shown(browser, "h1", "Menagerie")
        assert "menagerie login" in shown(browser, "pre").text
        assert is_dark(browser) == (scheme == "dark")
        assert violations(browser) == []
    for link in browser.find_elements(By.TAG_NAME, "a"):
        path = urlsplit(link.get_attribute("href") or "").path
        # By its name on this machine, where the account pages open without HTTPS.
        answer = api.get(path, headers={"Host": "localhost"})
        assert answer.status_code in {200, 503}, path
    assert complaints(browser) == []
    # A program that asks for no page finds what it finds at any path that is none.
    for accept in ("*/*", "application/json"):
        answer = api.get("/", headers={"Accept": accept})
        assert (answer.status_code, answer.json()["code"]) == (404, "no_such_path")
    page = api.get("/", headers={"Accept": "text/html,*/*;q=0.8"})
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["x-frame-options"] == "DENY"


# By day the page and what it loads, without a browser: specserver/test_pages.py.
@pytest.mark.nightly
def test_the_reference_shows_the_real_document_and_asks_nobody_else(
    house: tuple[House, str], browser: Chrome
) -> None:
    base = house[1]
    prefer(browser, "dark")
    browser.get(f"{base}/docs")
    shown(browser, "h1", "Menagerie control plane")
    shown(browser, "a, button", "Credentials")
    assert browser.find_elements(By.CSS_SELECTOR, "body.dark-mode")
    assert violations(browser) == []
    shown(browser, "button", "Search").click()
    field = shown(browser, "[role=dialog] input")
    field.send_keys("console")
    shown(browser, "[role=dialog] a, [role=option]", "opens the SQL console")
    asked = {urlsplit(one["url"]).netloc for one in requests_of(browser)}
    assert asked == {urlsplit(base).netloc}
    assert complaints(browser) == []


@pytest.mark.nightly
def test_the_reference_can_be_read_by_everybody_in_light_too(
    house: tuple[House, str], browser: Chrome
) -> None:
    prefer(browser, "light")
    browser.get(f"{house[1]}/docs")
    shown(browser, "h1", "Menagerie control plane")
    assert browser.find_elements(By.CSS_SELECTOR, "body.light-mode")
    assert violations(browser) == []


@pytest.mark.nightly
def test_each_try_of_a_request_has_a_key_of_its_own(
    house: tuple[House, str], browser: Chrome
) -> None:
    api, base = house
    tenant = api.tenant()
    browser.get("about:blank")
    browser.get(f"{base}/docs{CREATE}")
    shown(browser, "input[placeholder=Token]").send_keys(tenant.key)
    shown(browser, "button", "(post /v1/orgs/{org_id}/api-keys)").click()
    field = shown(browser, "[role=dialog] [contenteditable][aria-label*=Value]", "org_")
    browser.execute_script("arguments[0].focus()", field)
    browser.execute_script("document.execCommand('selectAll')")
    field.send_keys(tenant.org_id)
    path = f"{tenant.path}/api-keys"
    before = len(api.get(path, tenant.key).json()["items"])
    tries = [try_once(browser)["idempotency-key"] for _ in range(2)]
    assert len(set(tries)) == 2
    assert min(len(each) for each in tries) >= 32
    WebDriverWait(browser, DEADLINE_S).until(
        lambda _: len(api.get(path, tenant.key).json()["items"]) == before + 2
    )
