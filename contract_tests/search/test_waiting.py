"""Owns what becomes of more requests than an instance can work on."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from contract_tests.search.on_port import on_port
from contract_tests.search.process import MASTER
from contract_tests.service_process import until
from instance_services.search import answering

HEADERS = {"Authorization": f"Bearer {MASTER}"}


def test_more_requests_than_may_wait_are_refused_and_those_that_wait_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_given: Any) -> dict[str, Any]:
        begun.set()
        assert go_on.wait(60)
        return {"hits": []}

    monkeypatch.setattr(answering, "search", slow)
    with on_port(tmp_path, MASTER, threads=1, waiting=2) as address:

        def search() -> httpx.Response:
            url = f"{address}/indexes/books/search"
            return httpx.post(url, json={"q": "x"}, headers=HEADERS, timeout=60)

        with ThreadPoolExecutor(8) as threads:
            first = threads.submit(search)
            assert begun.wait(60)
            others = [threads.submit(search) for _ in range(7)]
            until(lambda: sum(each.done() for each in others) == 5, "five are refused")
            refused = [each.result() for each in others if each.done()]
            go_on.set()
            answers = [first.result(), *(each.result() for each in others)]
    assert sorted(each.status_code for each in answers) == [200] * 3 + [503] * 5
    told = refused[0]
    assert int(told.headers["retry-after"]) > 0
    assert told.json()["code"] == "too_many_search_requests"
    assert told.json()["type"] == "system"
