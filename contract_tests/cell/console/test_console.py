"""The console on the cell: its one-time URL, its sessions, its pages, and what it runs."""

import copy
import html
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cell.console.sessions import IDLE_S, LASTS_S, ConsoleSessions
from cell.database import Database
from contract_tests.cell.rig import Rig, until

COOKIE = "__Secure-console"
ENDLESS = "SELECT sum(hash(i) % 7) FROM range(1000000000000) t(i)"


@pytest.fixture(scope="module")
def instance_id(shared_rig: Rig) -> str:
    return shared_rig.make()


class Browser:
    """One that holds a session's cookie and the proof that its page carries."""

    def __init__(self, rig: Rig, instance_id: str, holder: str = "", person: str = "") -> None:
        self.http = rig.client()
        self.path = f"/console/{instance_id}/"
        token = rig.token(instance_id, "console", name="orders <b>", holder=holder, person=person)
        self.opened = self.http.get(f"/v1/console/{token}")
        self.token = token
        found = re.search(rf"{COOKIE}=([^;]+)", self.opened.headers.get("set-cookie", ""))
        self.secret = found[1] if found else ""
        self.proof = ""

    def load(self) -> httpx.Response:
        page = self.http.get(self.path, headers={"Cookie": f"{COOKIE}={self.secret}"})
        found = re.search(r'data-proof="([0-9a-f]+)"', page.text)
        self.proof = found[1] if found else ""
        return page

    def post(self, verb: str, body: Any = None, **headers: str) -> httpx.Response:
        given = {**self.headers(), **headers}
        return self.http.post(f"{self.path}{verb}", json=body, headers=given)

    def headers(self) -> dict[str, str]:
        return {"Cookie": f"{COOKIE}={self.secret}", "X-Console-Proof": self.proof}

    def run(self, sql: str) -> dict[str, Any]:
        answer = self.post("run", {"sql": sql})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def run_beside(self, sql: str) -> httpx.Response:
        """The answer of the engine, where others of the session ask whether it is busy.

        One of those may have its turn when this one comes, and is waited for.
        """
        while (answer := self.post("run", {"sql": sql})).status_code == 409:
            time.sleep(0.02)
        return answer

    def is_busy(self) -> bool:
        return self.post("run", {"sql": "SELECT 1"}).status_code == 409


@pytest.fixture
def browser(shared_rig: Rig, instance_id: str) -> Iterator[Browser]:
    made = Browser(shared_rig, instance_id)
    made.load()
    yield made
    made.http.close()


def test_the_url_sets_a_cookie_once_and_leads_to_a_clean_one(browser: Browser) -> None:
    assert browser.opened.status_code == 303
    assert browser.opened.headers["location"] == browser.path
    assert browser.opened.headers["cache-control"] == "no-store"
    marks = set(browser.opened.headers["set-cookie"].split("; ")[1:])
    assert marks == {
        "Max-Age=28800",
        f"Path={browser.path}",
        "Secure",
        "HttpOnly",
        "SameSite=Strict",
    }
    assert len(browser.secret) >= 43
    again = browser.http.get(f"/v1/console/{browser.token}")
    assert (again.status_code, again.json()["code"]) == (410, "used")
    assert "set-cookie" not in again.headers


def test_a_link_that_opens_nothing_is_a_page_to_a_browser(
    shared_rig: Rig, browser: Browser
) -> None:
    accept = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    gone = shared_rig.token("inst_nowhere", "console", name="x")
    other = shared_rig.token(browser.path.split("/")[2], "reveal")
    for token, status, title in (
        (browser.token, 410, "This link has already been used"),
        (gone, 404, "Instance not found"),
        (other, 403, "This link is not valid"),
        ("a.b", 403, "This link is not valid"),
    ):
        page = browser.http.get(f"/v1/console/{token}", headers=accept)
        assert page.status_code == status
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert f"<h1>{title}</h1>" in page.text
        assert "menagerie console open" in page.text
        assert "unsafe" not in page.headers["content-security-policy"]
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    "body", ['{"sql": "SELECT \\ud800"}', "[" * 10_000, '{"sql": ', "", '{"sql": 7}']
)
def test_a_statement_that_cannot_be_read_is_refused(browser: Browser, body: str) -> None:
    given = {"Cookie": f"{COOKIE}={browser.secret}", "X-Console-Proof": browser.proof}
    given["Content-Type"] = "application/json"
    answer = browser.http.post(f"{browser.path}run", content=body, headers=given)
    assert (answer.status_code, answer.json()["error"]) == (400, "Enter a statement to run.")


def test_tables_are_listed_beside_a_statement_that_runs(browser: Browser) -> None:
    browser.run("CREATE OR REPLACE TABLE listed (n INTEGER)")
    assert browser.post("tables", **{"X-Console-Proof": "0"}).status_code == 403
    assert browser.http.get(f"{browser.path}tables").status_code == 405
    (schema,) = browser.post("tables").json()["schemas"]
    columns = {table["name"]: table["columns"] for table in schema["tables"]}
    assert columns["listed"] == [{"name": "n", "type": "INTEGER"}]


def test_the_page_is_of_its_instance_and_of_nobody_else(browser: Browser, instance_id: str) -> None:
    page = browser.load()
    assert page.status_code == 200
    assert html.escape("orders <b>") in page.text
    assert "duckdb 1.5" in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    (nonce,) = re.findall(r"style-src 'self' 'nonce-([^']+)'", policy)
    assert f'data-nonce="{nonce}"' in page.text
    assert nonce not in browser.load().headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert browser.secret not in page.text
    for name in re.findall(r'"/console/static/([^"]+)"', page.text):
        file = browser.http.get(f"/console/static/{name}")
        assert file.status_code == 200
        assert "://" not in file.text.replace("http://www.w3.org/2000/svg", "")
    assert browser.http.get("/console/nothing").status_code in {404, 308}


def test_without_a_session_there_is_a_page_that_says_so(sql_rig: Rig, browser: Browser) -> None:
    other = sql_rig.make()
    with sql_rig.client() as http:
        for path, cookie in (
            (browser.path, ""),
            (browser.path, "wrong"),
            (browser.path, browser.secret + "x"),
            (f"/console/{other}/", browser.secret),
            ("/console/inst_01JD0000000000000000000000/", browser.secret),
        ):
            page = http.get(path, headers={"Cookie": f"{COOKIE}={cookie}"})
            assert page.status_code == 401
            assert "This session has ended" in page.text
            assert page.headers["content-type"].startswith("text/html")
            run = http.post(
                f"{path}run",
                json={"sql": "SELECT 1"},
                headers={"Cookie": f"{COOKIE}={cookie}", "X-Console-Proof": browser.proof},
            )
            assert run.status_code in {401, 403}
            assert "error" in run.json()
        from_elsewhere = http.get(browser.path, headers={"Sec-Fetch-Site": "cross-site"})
        assert from_elsewhere.status_code == 200
        assert 'http-equiv="refresh"' in from_elsewhere.text


def test_a_request_that_is_not_of_the_page_is_refused(browser: Browser) -> None:
    body = {"sql": "CREATE TABLE forged (n INTEGER)"}
    for verb in ("run", "stop", "end"):
        for headers in ({"X-Console-Proof": ""}, {"X-Console-Proof": "0" * 64}):
            assert browser.post(verb, body, **headers).status_code == 403
        for site in ("cross-site", "same-site", "none"):
            assert browser.post(verb, body, **{"Sec-Fetch-Site": site}).status_code == 403
        assert browser.http.get(f"{browser.path}{verb}").status_code == 405
    assert browser.post("run", {"sql": "SELECT 1"}).status_code == 200
    assert "forged" in browser.run("FROM forged")["error"]


def test_a_statement_is_answered_as_a_table(browser: Browser) -> None:
    answer = browser.run("SELECT 42 AS n, 'tea' AS word, NULL AS nothing, [1, 2] AS list")
    assert [column["name"] for column in answer["columns"]] == ["n", "word", "nothing", "list"]
    assert [column["numeric"] for column in answer["columns"]][:2] == [True, False]
    assert answer["rows"] == [["42", "tea", None, "[1, 2]"]]
    assert (answer["row_count"], answer["truncated"]) == (1, False)
    many = browser.run("SELECT range AS n FROM range(5000)")
    assert (many["row_count"], many["truncated"]) == (1000, True)
    assert many["rows"][-1] == ["999"]
    long = browser.run("SELECT repeat('x', 300000) AS text")
    assert len(long["rows"][0][0]) == 100_000
    assert long["cut"]
    changed = browser.run("CREATE TABLE kept (n INTEGER); INSERT INTO kept VALUES (1), (2)")
    assert (changed["columns"], changed["changed"]) == ([], 2)


def test_errors_are_the_engines_own(browser: Browser) -> None:
    wrong = browser.run("SELEC 1")
    assert "syntax error" in wrong["error"]
    assert browser.post("run", {"sql": "  "}).status_code == 400
    assert browser.post("run", [1]).status_code == 400
    assert browser.post("run", {"sql": "x" * 200_001}).status_code == 413
    assert browser.post("run", {"sql": "x" * 3_000_000}).status_code == 413


def test_signing_out_ends_the_session(browser: Browser) -> None:
    form = {"proof": browser.proof}
    headers = {"Cookie": f"{COOKIE}={browser.secret}"}
    left = browser.http.post(f"{browser.path}end", data=form, headers=headers)
    assert left.status_code == 200
    assert "Signed out" in left.text
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert browser.load().status_code == 401


@pytest.mark.parametrize("verb", ["delete", "erase"])
def test_a_session_ends_with_its_instance(sql_rig: Rig, verb: str) -> None:
    instance_id = sql_rig.make()
    browser = Browser(sql_rig, instance_id)
    assert browser.load().status_code == 200
    sql_rig.action(instance_id, verb)
    assert browser.load().status_code == 401
    if verb == "delete":
        sql_rig.put(instance_id)
        assert browser.load().status_code == 401


def test_a_rotation_ends_every_session_and_what_it_runs(shared_rig: Rig) -> None:
    instance_id = shared_rig.make()
    browser = Browser(shared_rig, instance_id)
    assert browser.load().status_code == 200
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(browser.run_beside(ENDLESS)))
    asking.start()
    second = copy.copy(browser)
    with shared_rig.client() as second.http:
        until(second.is_busy, "it runs")
        shared_rig.rotate(instance_id)
        assert second.load().status_code == 401
    asking.join(60)
    assert answers[0].json()["error"] == "the statement was stopped"
    fresh = Browser(shared_rig, instance_id)
    fresh.load()
    assert fresh.run("SELECT 1")["rows"] == [["1"]]


def test_a_statement_can_be_stopped(shared_rig: Rig, browser: Browser) -> None:
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(browser.run_beside(ENDLESS)))
    asking.start()
    second = copy.copy(browser)
    with shared_rig.client() as second.http:

        def is_stopped() -> bool:
            second.post("stop")
            asking.join(0.2)
            return not asking.is_alive()

        until(second.is_busy, "the statement runs")
        until(is_stopped, "the statement is stopped")
    assert answers[0].json()["error"] == "the statement was stopped"


@pytest.mark.nightly
def test_an_instance_in_use_stays_awake_and_one_asleep_wakes(sql_rig: Rig) -> None:
    instance_id = sql_rig.make(idle_pause_s=1.5)
    browser = Browser(sql_rig, instance_id)
    browser.load()
    for _ in range(8):
        assert browser.run("SELECT 1")["rows"] == [["1"]]
        assert sql_rig.observe(instance_id)["restarts"] == 0
        time.sleep(0.2)
    sql_rig.status_is(instance_id, "paused")
    assert browser.run("SELECT 2")["rows"] == [["2"]]
    sql_rig.action(instance_id, "pause")
    refused = browser.post("run", {"sql": "SELECT 3"})
    assert refused.status_code == 409
    assert "paused on request" in refused.json()["error"]


@pytest.mark.nightly
def test_a_cell_that_ends_takes_what_runs_with_it(rig: Rig) -> None:
    browser = Browser(rig, rig.make())
    browser.load()
    told: list[object] = []

    def ask() -> None:
        try:
            told.append(browser.run_beside(ENDLESS).status_code)
        except httpx.HTTPError as error:
            told.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    second = copy.copy(browser)
    with rig.client() as second.http:
        until(second.is_busy, "the statement runs")
    assert rig.terminate() == 0
    asking.join(60)
    assert told


def test_sessions_end_by_time_and_are_kept_as_hashes(tmp_path: Path) -> None:
    now = 1_000_000.0
    sessions = ConsoleSessions(Database(tmp_path / "cell.db"), lambda: now)
    secret = sessions.begin("inst_a", "a")
    assert sessions.find("inst_b", secret) is None
    for _ in range(20):
        now += IDLE_S - 1
        found = sessions.find("inst_a", secret)
        assert (found is not None) == (now < 1_000_000.0 + LASTS_S)
    idle = sessions.begin("inst_a", "a")
    now += IDLE_S
    assert sessions.find("inst_a", idle) is None
    sessions.forget_ended()
    many = [sessions.begin("inst_a", "a") for _ in range(60)]
    assert sessions.find("inst_a", many[0]) is None
    assert sessions.find("inst_a", many[-1]) is not None
    assert secret.encode() not in b"".join(
        path.read_bytes() for path in tmp_path.iterdir() if path.is_file()
    )


@pytest.mark.parametrize(
    "path",
    [
        "/console/static//evil.example",
        "/console//evil.example",
        "/console//evil.example/",
        "/console/static/..//evil.example",
        "/console/%2f%2fevil.example",
        "/console/%5cevil.example",
        "/console/\\evil.example",
        "/console//evil.example/%2e%2e",
        "//evil.example/console/x",
        "/console/x",
    ],
)
def test_no_way_of_writing_a_path_leads_to_another_host(shared_rig: Rig, path: str) -> None:
    url = httpx.URL(scheme="http", host="evil.example", raw_path=path.encode())
    answer = shared_rig.client().request("GET", url, headers={"Host": "evil.example"})
    location = answer.headers.get("location", "")
    assert answer.status_code != 500
    assert location == "" or (location.startswith("/console/") and "//" not in location), location
