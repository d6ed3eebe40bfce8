"""The SQL console in a browser, over the gateway's TLS: opened once, asked by keyboard, read."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from contract_tests.end_to_end.chromium import chromium, skip_without
from contract_tests.end_to_end.installation import Installation, order

# Wherever a machine has the engine, the console is tried with it.
ENGINES = ("duckdb", "postgres", "mariadb", "mysql")
DEADLINE_S = 90
ROW = "SELECT 40 + 2 AS answer, 'tea' AS word, NULL AS nothing"
WRONG = {
    "duckdb": "nowhere",
    "postgres": 'relation "nowhere" does not exist',
    "mariadb": "ERROR 1146",
    "mysql": "ERROR 1146",
}


def console_url(installation: Installation, instance_id: str) -> str:
    path = f"/v1/orgs/{installation.endpoints['org_id']}/instances/{instance_id}"
    with installation.api() as api:
        made = api.post(f"{path}/console-sessions")
    assert made.status_code == 201, made.text
    return str(made.json()["url"])


@pytest.fixture(scope="module")
def warehouse(installation: Installation) -> dict[str, Any]:
    return order(installation, name="warehouse")


@pytest.fixture(scope="module")
def browser(
    installation: Installation,
    warehouse: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Chrome]:
    skip_without()
    cell = urlsplit(console_url(installation, warehouse["id"]))
    assert cell.hostname is not None
    assert cell.port is not None
    with chromium(tmp_path_factory.mktemp("profile"), cell.hostname, cell.port) as driver:
        yield driver


def ask(browser: Chrome, sql: str) -> str:
    """Types it, runs it by keyboard, and answers what the status line says then."""
    area = browser.find_element(By.ID, "sql")
    area.clear()
    area.send_keys(sql)
    area.send_keys(Keys.CONTROL, Keys.ENTER)
    busy = '#ask[aria-busy="false"]'
    WebDriverWait(browser, DEADLINE_S).until(lambda b: b.find_elements(By.CSS_SELECTOR, busy))
    return browser.find_element(By.ID, "status").text


def texts(browser: Chrome, selector: str) -> list[str]:
    """In one step, as a page that is about to be left may go between two."""
    script = "return Array.from(document.querySelectorAll(arguments[0]), each => each.innerText)"
    return [str(text).strip() for text in browser.execute_script(script, selector)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_query_by_keyboard_shows_a_table_and_an_error(
    installation: Installation, warehouse: dict[str, Any], browser: Chrome, engine: str
) -> None:
    with installation.api() as api:
        offers = {one["id"]: one["availability"] for one in api.get("/v1/engines").json()}
    if offers[engine] != "available":
        pytest.skip(f"this machine has no {engine}")
    instance = warehouse if engine == "duckdb" else order(installation, engine=engine)
    url = console_url(installation, instance["id"])
    browser.get(url)
    assert urlsplit(browser.current_url).path == f"/console/{instance['id']}/"
    assert texts(browser, "h1") == [instance["name"]]
    assert browser.switch_to.active_element.get_attribute("id") == "sql"

    assert "1 row in" in ask(browser, ROW)
    heads = [text.split("\n")[0] for text in texts(browser, "thead th")]
    assert heads == ["#", "answer", "word", "nothing"]
    assert texts(browser, "tbody td") == ["42", "tea", "NULL"]
    assert len(browser.find_elements(By.CSS_SELECTOR, "tbody .null")) == 1

    assert "Failed after" in ask(browser, "SELECT * FROM nowhere")
    assert WRONG[engine] in texts(browser, "#error")[0]
    assert "<b>bold</b>" in ask_value(browser, "SELECT '<b>bold</b>' AS markup")
    assert not browser.find_elements(By.CSS_SELECTOR, "#result b")

    browser.get(url)
    assert "this URL was used before" in browser.page_source


def ask_value(browser: Chrome, sql: str) -> str:
    ask(browser, sql)
    return texts(browser, "tbody td")[0]


def test_writes_stay_and_sessions_of_statements_are_remembered(
    installation: Installation, warehouse: dict[str, Any], browser: Chrome
) -> None:
    browser.get(console_url(installation, warehouse["id"]))
    ask(browser, "CREATE OR REPLACE TABLE kept AS SELECT 7 AS n")
    assert ask_value(browser, "FROM kept") == "7"
    assert "(more exist)" in ask(browser, "FROM range(2000)")
    assert len(browser.find_elements(By.CSS_SELECTOR, "tbody tr")) == 1000
    ask(browser, "SELECT repeat('long ', 100) AS text")
    assert "all 500 characters" in texts(browser, "tbody td")[0]
    browser.find_element(By.CSS_SELECTOR, "tbody td button").send_keys(Keys.ENTER)
    assert texts(browser, "tbody td span")[0].count("long") == 100
    area = browser.find_element(By.ID, "sql")
    area.send_keys(Keys.ALT, Keys.ARROW_UP, Keys.ARROW_UP)
    assert area.get_attribute("value") == "FROM range(2000)"
    browser.refresh()
    assert browser.find_element(By.ID, "count").text == "4"
    # By keyboard alone: from the text to Run, past Stop, which is not for now.
    browser.find_element(By.ID, "sql").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("id") == "run"


class Elsewhere(BaseHTTPRequestHandler):
    """A page of another site, with a link."""

    href = ""

    def do_GET(self) -> None:
        page = f'<!doctype html><title>elsewhere</title><a id="go" href="{self.href}">go</a>'
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_: object) -> None: ...


def test_a_link_on_another_site_opens_it(
    installation: Installation, warehouse: dict[str, Any], browser: Chrome, tmp_path: Path
) -> None:
    Elsewhere.href = console_url(installation, warehouse["id"])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        # What an earlier test left would open the page whatever becomes of the new one.
        browser.delete_all_cookies()
        browser.get(f"http://elsewhere.example:{server.server_port}/")
        browser.find_element(By.ID, "go").click()
        WebDriverWait(browser, DEADLINE_S).until(lambda b: b.find_elements(By.ID, "sql"))
        assert texts(browser, "h1") == ["warehouse"]
        cookie = browser.get_cookie("__Secure-console")
        assert cookie is not None
        assert (cookie["sameSite"], cookie["httpOnly"], cookie["secure"]) == ("Strict", True, True)
    finally:
        server.shutdown()
        server.server_close()


def test_signing_out_closes_the_page_for_good(
    installation: Installation, warehouse: dict[str, Any], browser: Chrome
) -> None:
    browser.get(console_url(installation, warehouse["id"]))
    page = browser.current_url
    browser.find_element(By.CSS_SELECTOR, "#leave button").click()
    WebDriverWait(browser, DEADLINE_S, ignored_exceptions=[WebDriverException]).until(
        lambda b: texts(b, "h1") == ["Signed out"]
    )
    browser.get(page)
    assert texts(browser, "h1") == ["This session has ended"]
