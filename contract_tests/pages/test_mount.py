"""The pages within the API's process: what they take of it, and what they leave in its log."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from contract_tests.api import letters
from contract_tests.api.harness import PASSWORD, House
from contract_tests.pages.browsing import HOST, Browser
from contract_tests.pages.test_walks import SIGN_IN, START, invited, signed_in
from menagerie import logs
from menagerie.access import AccessLog
from menagerie.account_pages import THREADS_OF_ONE, WAITING_OF_ONE, AccountPages
from menagerie.settings import Settings

TOKEN = "ms_" + "a" * 48


@pytest.fixture
def lines(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the API logs, as it comes before secrets are taken out of it."""
    before = structlog.get_config()
    found = structlog.testing.LogCapture()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, found])
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
    monkeypatch.setattr(house, "app", AccessLog(house.app))
    monkeypatch.setattr("menagerie.access._LOG", structlog.get_logger("api"))
    yield found.entries
    structlog.configure(**before)


def test_no_token_is_in_the_log(house: House, lines: list[Any]) -> None:
    browser = Browser(house)
    link = invited(house, house.tenant(), "logged@example.com")
    token = link.rpartition("=")[2]
    page = browser.get(link)
    page = browser.send(
        page, "Create account and join", name="Logged", password="staple-of-nine-oaks"
    )
    session = browser.cookies["menagerie-session"]
    assert page.path.startswith(START)
    paths = [line["path"] for line in lines if line["event"] == "request"]
    assert paths[-3:] == ["/account/invite", "/account/invite/create-account", "/account/"]
    for secret in (token, session, "staple-of-nine-oaks"):
        assert secret not in str(lines)
    # Nor where somebody writes a whole URL into a line.
    assert token not in logs.redact(f"GET {link}")


def test_no_token_of_a_letter_is_in_the_log(house: House, lines: list[Any]) -> None:
    browser, person = Browser(house), house.person()
    reset = letters.reset(house, person.email)
    page = browser.get(f"/account/reset?token={reset}")
    browser.send(page, "Set the new password", password="staple-of-nine-oaks")
    signed_in(browser, person, "staple-of-nine-oaks")
    body = {"email": "elsewhere@example.com", "password": "staple-of-nine-oaks"}
    answer = house.post("/v1/me/email", browser.cookies["menagerie-session"], json=body)
    assert answer.status_code == 202
    house.settle()
    change = house.letters.last.text.partition("email?token=")[2].split()[0]
    page = browser.get(f"/account/email?token={change}")
    page = browser.send(page, "Confirm the address")
    assert page.path == "/account/?done=email"
    paths = {line["path"] for line in lines if line["event"] == "request"}
    assert {"/account/reset", "/account/reset/complete", "/account/email/confirm"} <= paths
    for token in (reset, change):
        assert token not in str(lines)
        assert token not in logs.redact(f"GET /account/reset?token={token}")


def test_what_a_page_asks_has_the_id_of_its_request(house: House, lines: list[Any]) -> None:
    browser = Browser(house)
    page = browser.send(browser.get(SIGN_IN), "Sign in", email="nobody@example.com", password="x")
    (refused,) = [line for line in lines if line["event"] == "sign_in.refused"]
    assert refused["request_id"] == page.response.headers["x-request-id"]
    assert refused["ip"] == "203.0.113.7"


def test_an_address_that_asks_for_much_leaves_threads_to_others(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"home": tmp_path}
    pages = AccountPages(Settings(**chosen), lambda _request: None)
    answering = asyncio.Event()

    async def slow(_scope: Any, _receive: Any, send: Any) -> None:
        await answering.wait()
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b'{"code": "unauthenticated"}'})

    pages.api = slow

    async def ask(address: str, path: str) -> httpx.Response:
        transport = httpx.ASGITransport(pages, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
            return await client.get(path, headers={"Cookie": f"menagerie-session={TOKEN}"})

    async def attempts() -> tuple[list[int], int]:
        places = THREADS_OF_ONE + WAITING_OF_ONE
        crowd = [asyncio.create_task(ask("192.0.2.1", START)) for _ in range(places + 5)]
        await asyncio.wait(crowd, return_when=asyncio.FIRST_COMPLETED)
        other = await ask("198.51.100.1", "/account/nowhere")
        answering.set()
        return [(await one).status_code for one in crowd], other.status_code

    statuses, other = asyncio.run(attempts())
    assert other == 404
    assert statuses == [303] * (THREADS_OF_ONE + WAITING_OF_ONE) + [429] * 5


def test_an_api_that_fails_is_a_page_that_says_so(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = Browser(house)
    signed_in(browser, house.person())

    def fail(*_: Any) -> None:
        raise RuntimeError("no database")

    monkeypatch.setattr("handlers.access.me.views.user", fail)
    page = browser.get(START)
    assert page.status == 500
    assert "no database" not in page.response.text
    monkeypatch.undo()
    assert browser.get(START).title == "Your account"


def test_two_people_at_once_are_two_people(house: House) -> None:
    people = [house.person(f"Person {n}") for n in range(8)]
    requests = []
    for person in people:
        browser = Browser(house, address=f"203.0.{person.id[-1:].encode()[0]}.9")
        form = browser.get(SIGN_IN).form("Sign in")
        typed = {**form.values, "email": person.email, "password": PASSWORD}
        requests.append(browser.as_request(form.action, typed))
    answers = house.together(*requests)
    assert [answer.status_code for answer in answers] == [303] * 8
    for person, answer in zip(people, answers, strict=True):
        line = next(one for one in answer.headers.get_list("set-cookie") if "session" in one)
        token = line.partition("=")[2].partition(";")[0]
        assert house.get("/v1/me", token).json()["user"]["id"] == person.id
