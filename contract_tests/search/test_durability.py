"""Owns the promise that a task which was accepted is done, whenever the processes are killed."""

import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from contract_tests.search.process import Service
from instance_services.search import databases, waking
from instance_services.search.allowance import Limits
from instance_services.search.indexing import Indexer
from instance_services.search.tasks import TaskQueue


def test_no_accepted_task_is_lost_to_kills(own_service: Service) -> None:
    service, accepted = own_service, []
    pauses = random.Random(7)
    for start in range(0, 120, 30):
        with service.client() as client:
            for number in range(start, start + 30):
                body = [{"id": number, "text": f"word{number} shared"}]
                answer = client.post("/indexes/kept/documents", json=body)
                accepted.append(answer.json())
        if pauses.random() < 0.5:
            service.finished(accepted[start])
        service.end(signal.SIGKILL)
        service.start()
    for summary in accepted:
        assert service.finished(summary)["status"] == "succeeded"
    assert service.ask("GET", "/indexes/kept/documents?limit=0")["total"] == 120
    service.done("PATCH", "/indexes/kept/settings", {"searchCutoffMs": 60_000})
    found = service.ask("POST", "/indexes/kept/search", {"q": "shared", "limit": 200})
    assert sorted(hit["id"] for hit in found["hits"]) == list(range(120))
    assert [task["taskUid"] for task in accepted] == list(range(120))


def test_the_indexing_process_is_started_again(own_service: Service) -> None:
    service = own_service
    assert service.process is not None
    service.done("POST", "/indexes/a/documents", [{"id": 1}])
    (child,) = psutil.Process(service.process.pid).children()
    child.kill()
    service.done("POST", "/indexes/a/documents", [{"id": 2}])
    # It does not outlive the service.
    (child,) = psutil.Process(service.process.pid).children()
    service.process.kill()
    child.wait(30)


def test_candidates_are_made_again_where_they_are_missing(own_service: Service) -> None:
    service = own_service
    service.done("POST", "/indexes/a/documents", [{"id": 1, "text": "hello"}])
    service.end(signal.SIGTERM)
    shutil.rmtree(service.data / "candidates")
    service.start()
    assert service.ask("POST", "/indexes/a/search", {"q": "hello"})["hits"]


def test_a_batch_that_does_not_fit_fails_and_the_next_is_done(tmp_path: Path) -> None:
    databases.make(tmp_path)
    indexer = Indexer(tmp_path)
    queue = TaskQueue(databases.open_tasks(tmp_path))

    def add(size: int) -> dict[str, Any]:
        payload = {
            "isPartial": False,
            "primaryKey": "id",
            "documents": [{"id": 1, "a": "a" * size}],
        }
        summary = queue.accept("documentAdditionOrUpdate", "x", {}, orjson.dumps(payload))
        assert indexer.step()
        return queue.get(summary["taskUid"]) or {}

    (pages,) = indexer._data.execute("PRAGMA page_count").fetchone()
    indexer._data.execute(f"PRAGMA max_page_count = {pages + 20}")
    failed = add(1_000_000)
    assert (failed["status"], failed["error"]["code"]) == ("failed", "no_space_left_on_device")
    assert add(10)["status"] == "succeeded"
    indexer.close()


def test_an_indexing_process_that_starts_while_the_service_stops_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal to all processes ends the former one, so that another starts at the same time."""
    databases.make(tmp_path)
    indexing = waking.IndexingProcess(tmp_path, Limits())
    started = subprocess.Popen

    def start(*given: Any, **options: Any) -> "subprocess.Popen[bytes]":
        process = started(*given, **options)
        # As `stop` does before it looks for the process.
        indexing._ending.set()
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    indexing._thread.start()
    indexing._thread.join(60)
    assert not indexing._thread.is_alive()
