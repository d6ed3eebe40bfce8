"""Holds the service together under callers that ask for little, for much, and that go away."""

import contextlib
import random
import threading

import httpx
import pytest

from contract_tests.duckdb.process import Service

_CALLERS = 6
_REQUESTS = 20
_ENDLESS = "SELECT sum(a.range * b.range) FROM range(100000000) a, range(100000000) b"
# Some milliseconds: about as long as the event loop may be held up.
_MIDDLING = "SELECT sum(i) FROM range({}) t(i)"


def _call(service: Service, caller: int, written: list[int], failures: list[str]) -> None:
    chance = random.Random(caller)
    client = service.client()
    with contextlib.closing(client):
        for number in range(_REQUESTS):
            try:
                _ask(service, client, chance, caller * 1000 + number, written)
            except (AssertionError, httpx.HTTPError) as error:
                failures.append(f"caller {caller}, request {number}: {error!r}")


def _ask(
    service: Service, client: httpx.Client, chance: random.Random, key: int, written: list[int]
) -> None:
    kind = chance.random()
    if kind < 0.1:
        with (
            service.client(timeout_s=0.1) as impatient,
            contextlib.suppress(httpx.TimeoutException),
        ):
            impatient.post("/query", json={"sql": _ENDLESS})
    elif kind < 0.2:
        assert client.get("/health").status_code == 200
    elif kind < 0.4:
        upto = chance.randrange(1_000_000, 20_000_000)
        answer = client.post("/query", json={"sql": _MIDDLING.format(upto)})
        assert answer.json()["rows"] == [[upto * (upto - 1) // 2]]
    elif kind < 0.6:
        sql = {"sql": "INSERT INTO written VALUES (?)", "params": [key]}
        assert client.post("/query", json=sql).status_code == 200
        written.append(key)
    else:
        answer = client.post("/query", json={"sql": "SELECT ?", "params": [key]})
        assert answer.json()["rows"] == [[key]]


@pytest.mark.nightly
def test_short_long_and_abandoned_queries_at_once(own_service: Service) -> None:
    own_service.query("CREATE TABLE written (i INTEGER)")
    written: list[int] = []
    failures: list[str] = []
    threads = [
        threading.Thread(target=_call, args=(own_service, caller, written, failures))
        for caller in range(_CALLERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found = [row[0] for row in own_service.rows("SELECT i FROM written ORDER BY i")]
    assert found == sorted(written)
