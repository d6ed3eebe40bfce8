"""The SQL console in a browser, over the gateway's TLS: opened once, asked by keyboard, read."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from contract_tests.cell.rig import until
from contract_tests.end_to_end.chromium import (
    chromium,
    complaints,
    is_dark,
    prefer,
    skip_without,
    violations,
)
from contract_tests.end_to_end.installation import Installation, order
from contract_tests.end_to_end.test_engines import refuse_missing

# Wherever a machine has the engine, the console is tried with it.
# What runs on the others is shown without a browser (engines/test_console); with one at night.
ENGINES = (
    "duckdb",
    *(pytest.param(each, marks=pytest.mark.nightly) for each in ("postgres", "mariadb", "mysql")),
)
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
    write(browser, sql)
    return run(browser)


def write(browser: Chrome, sql: str) -> None:
    area = browser.find_element(By.ID, "sql")
    area.send_keys(Keys.CONTROL, "a")
    # What is typed over a selection is first Chromium's own, with styles that the policy refuses.
    area.send_keys(Keys.DELETE)
    area.send_keys(sql)


def run(browser: Chrome) -> str:
    browser.find_element(By.ID, "sql").send_keys(Keys.CONTROL, Keys.ENTER)
    busy = '#ask[aria-busy="false"]'
    WebDriverWait(browser, DEADLINE_S).until(lambda b: b.find_elements(By.CSS_SELECTOR, busy))
    return browser.find_element(By.ID, "status").text


def written(browser: Chrome) -> str:
    return "\n".join(texts(browser, ".cm-line"))


def texts(browser: Chrome, selector: str) -> list[str]:
    """In one step, as a page that is about to be left may go between two."""
    script = "return Array.from(document.querySelectorAll(arguments[0]), each => each.innerText)"
    return [str(text).strip() for text in browser.execute_script(script, selector)]


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ENGINES)
def test_a_query_by_keyboard_shows_a_table_and_an_error(
    installation: Installation, warehouse: dict[str, Any], browser: Chrome, engine: str
) -> None:
    refuse_missing(installation, engine)
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

    assert complaints(browser) == []
    browser.get(url)
    assert texts(browser, "h1") == ["This link has already been used"]
    assert "menagerie console open" in texts(browser, "main")[0]
    assert violations(browser) == []


def ask_value(browser: Chrome, sql: str) -> str:
    ask(browser, sql)
    return texts(browser, "tbody td")[0]


@pytest.mark.nightly
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
    assert written(browser) == "FROM range(2000)"
    count = int(browser.find_element(By.ID, "count").text)
    assert count >= 4
    assert ask(browser, "SELECT 'of no concern' AS password").startswith("1 row")
    browser.get(console_url(installation, warehouse["id"]))
    assert browser.find_element(By.ID, "count").text == str(count)
    # By keyboard alone: from the text to Run, past Stop, which is not for now.
    browser.find_element(By.ID, "sql").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("id") == "run"


@pytest.mark.nightly
def test_tables_are_listed_completed_and_shown_whatever_they_are_called(
    installation: Installation, warehouse: dict[str, Any], browser: Chrome
) -> None:
    browser.get(console_url(installation, warehouse["id"]))
    hostile = '<img src=x onerror=document.title=1>""; --'
    ask(browser, f'CREATE OR REPLACE TABLE "{hostile}" AS SELECT 3 AS "<b>bold</b>"')
    ask(browser, "CREATE OR REPLACE TABLE teapots AS SELECT 7 AS litres, 'blue' AS colour")
    listed = "#schemas details details > summary"
    WebDriverWait(browser, DEADLINE_S).until(lambda b: "teapots" in texts(b, listed))
    assert hostile.replace('""', '"') in texts(browser, listed)
    assert not browser.find_elements(By.CSS_SELECTOR, "#schemas img, #schemas b")

    for name in ("teapots", hostile.replace('""', '"')):
        browser.execute_script(
            "Array.from(document.querySelectorAll(arguments[0])).find("
            " each => each.textContent === arguments[1]).focus()",
            *(listed, name),
        )
        ActionChains(browser).send_keys(Keys.ENTER, Keys.TAB, Keys.ENTER).perform()
        WebDriverWait(browser, DEADLINE_S).until(
            lambda b: texts(b, "#status")[0].startswith("1 row")
        )
    assert texts(browser, "tbody td") == ["3"]
    assert "colour" in texts(browser, "#schemas .columns .name")
    assert "VARCHAR" in texts(browser, "#schemas .columns .type")

    write(browser, "SELECT * FROM teap")
    options = ".cm-tooltip-autocomplete li"
    WebDriverWait(browser, DEADLINE_S).until(lambda b: "teapots" in texts(b, options)[:1])

    def is_taken(b: Chrome) -> bool:
        # What is offered is taken a moment after it was first shown, and not by a hasty key.
        b.find_element(By.ID, "sql").send_keys(Keys.TAB)
        return "teapots" in written(b)

    WebDriverWait(browser, DEADLINE_S).until(is_taken)
    assert "1 row" in run(browser)


@pytest.mark.nightly
def test_a_selection_is_run_and_rows_are_saved(
    installation: Installation, warehouse: dict[str, Any], browser: Chrome, tmp_path: Path
) -> None:
    browser.get(console_url(installation, warehouse["id"]))
    write(browser, "SELECT 1 AS alone; SELECT 2 AS last")
    area = browser.find_element(By.ID, "sql")
    area.send_keys(Keys.HOME)
    area.send_keys(Keys.SHIFT, *[Keys.ARROW_RIGHT] * len("SELECT 1 AS alone"))
    assert texts(browser, "#run") == ["Run selection"]
    run(browser)
    assert texts(browser, "thead th")[1].startswith("alone")

    folder = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", folder)
    sql = "SELECT 1.50 AS n, '=1+1' AS f, 'a,\"b' AS f, NULL AS g, '' AS h, 9007199254740993 AS i"
    ask(browser, sql)
    for kind in ("csv", "json"):
        browser.find_element(By.ID, kind).click()
        pattern = f"*.{kind}"
        until(partial(_has, tmp_path, pattern), "the file is saved")
    (rows,) = tmp_path.glob("warehouse-*.csv")
    assert rows.read_bytes() == b'n,f,f,g,h,i\r\n1.50,=1+1,"a,""b",,"",9007199254740993\r\n'
    (document,) = tmp_path.glob("warehouse-*.json")
    row = {"n": "1.50", "f": "=1+1", "f_2": 'a,"b', "g": None, "h": "", "i": "9007199254740993"}
    assert json.loads(document.read_text()) == [row]


def _has(folder: Path, pattern: str) -> bool:
    return any(folder.glob(pattern))


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
def test_the_page_can_be_used_by_everybody(
    installation: Installation, warehouse: dict[str, Any], browser: Chrome, scheme: str
) -> None:
    prefer(browser, scheme)
    browser.get(console_url(installation, warehouse["id"]))
    ask(browser, "SELECT 'tea' AS word, NULL AS nothing, repeat('long', 100) AS text -- a comment")
    browser.find_element(By.CSS_SELECTOR, "#history summary").click()
    assert is_dark(browser) == (scheme == "dark")
    assert violations(browser) == []
    ink = highlighted(browser)
    told_apart = ("SELECT", "'tea'", "100", "-- a comment")
    assert len({ink[each] for each in told_apart}) == len(told_apart), ink
    ask(browser, "SELEC")
    assert violations(browser) == []
    browser.find_element(By.ID, "clear").click()
    assert browser.find_element(By.ID, "count").text == "0"
    browser.refresh()
    assert browser.find_element(By.ID, "count").text == "0"
    prefer(browser, "light" if scheme == "dark" else "dark")
    assert is_dark(browser) != (scheme == "dark"), "it follows while it is open"
    assert complaints(browser) == []


def highlighted(browser: Chrome) -> dict[str, str]:
    """The colour of each piece of the statement that has one of its own."""
    script = """return Array.from(document.querySelectorAll(".cm-line span"),
        each => [each.textContent, getComputedStyle(each).color])"""
    return dict(browser.execute_script(script))


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


@pytest.mark.nightly
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


@pytest.mark.nightly
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
    assert violations(browser) == []
    kept = browser.execute_script("return Object.keys(localStorage)")
    assert not [key for key in kept if warehouse["id"] in key]
