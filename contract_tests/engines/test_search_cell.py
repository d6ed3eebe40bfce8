"""A search engine in its sandbox: copies of one moment amid indexing, and the size's limits."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from cell.engines.driver import ReportsLoading
from cell.engines.search import OPENING
from contract_tests.cell.rig import engine, until
from contract_tests.engines.conftest import Subject

TASKS = 40
EACH = 25


def client(subject: Subject) -> Any:
    headers = {"Authorization": f"Bearer {subject.login.password}"}
    return engine(str(subject.site.socket), headers)


def add(http: httpx.Client, number: int) -> int:
    """A task that adds documents nobody else adds."""
    first = number * EACH
    documents = [{"id": n, "text": f"word{n}"} for n in range(first, first + EACH)]
    answer = http.post("/indexes/books/documents", json=documents)
    assert answer.status_code == 202, answer.text
    return int(answer.json()["taskUid"])


@pytest.mark.parametrize("subject", ["meilisearch"], indirect=True)
def test_a_copy_amid_indexing_has_each_accepted_task_once(running: Subject, folder: Path) -> None:
    with client(running) as http:
        accepted = [add(http, number) for number in range(TASKS)]
        made = running.driver.snapshot(running.site, running.process, running.login, folder)
        running.run(made)
        # What comes later is not in the copy.
        later = add(http, TASKS)
    running.stop()
    running.run(running.driver.restore(running.site, folder))
    running.start()
    with client(running) as http:

        def waiting() -> int:
            found = http.get("/tasks?statuses=enqueued,processing&limit=0").json()
            return int(found["total"])

        until(lambda: waiting() == 0, "what was accepted is done")
        tasks = http.get("/tasks", params={"limit": 1_000}).json()["results"]
        statuses = {task["uid"]: task["status"] for task in tasks}
        assert statuses == dict.fromkeys(accepted, "succeeded")
        assert later not in statuses
        stats = http.get("/indexes/books/stats").json()
        assert stats["numberOfDocuments"] == TASKS * EACH
        for number in (0, TASKS * EACH - 1):
            hits = http.post("/indexes/books/search", json={"q": f"word{number}"}).json()["hits"]
            # Others are found by typos.
            assert hits[0]["id"] == number


@pytest.mark.parametrize("subject", ["meilisearch"], indirect=True)
def test_a_start_that_makes_again_what_searching_needs_may_take_longer(running: Subject) -> None:
    driver, site = running.driver, running.site
    assert isinstance(driver, ReportsLoading)
    assert not running.run(driver.is_loading(site))
    opening = site.data.outside / OPENING
    opening.touch()
    assert running.run(driver.is_loading(site))
    # One that was ended meanwhile leaves it, and its next start removes it.
    running.stop()
    running.start()
    assert not opening.exists()


@pytest.mark.parametrize("subject", ["meilisearch"], indirect=True)
def test_a_body_beyond_what_its_size_takes_is_refused(running: Subject) -> None:
    with client(running) as http:
        body = b'[{"id": 1, "a": "' + b"a" * (24 * 2**20) + b'"}]'
        answer = http.post(
            "/indexes/books/documents", content=body, headers={"Content-Type": "application/json"}
        )
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
