"""Owns the promises about the limits of a size: storage that is full, memory that does not do."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from contract_tests.search.process import Service, running
from contract_tests.service_process import until
from instance_services.search import candidates, databases
from instance_services.search.command import arrival_s
from instance_services.search.indexing import BATCH_BYTES_MAX, Indexer
from instance_services.search.tasks import TaskQueue

STORAGE_BYTES = 20_000_000
INDEXING_BYTES = 96 * 2**20


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    options = ["--storage-bytes", str(STORAGE_BYTES), "--indexing-bytes", str(INDEXING_BYTES)]
    with running(tmp_path_factory.mktemp("small"), *options) as started:
        yield started


def documents(first: int, count: int = 50, length: int = 16_000) -> list[dict[str, Any]]:
    return [{"id": n, "text": f"word{n} " + "x" * length} for n in range(first, first + count)]


def test_a_full_storage_refuses_documents_and_takes_them_again_after_a_deletion(
    small: Service,
) -> None:
    path = "/indexes/full/documents"
    told: tuple[int, str] | None = None
    for first in range(0, 5_000, 50):
        with small.client() as client:
            answer = client.post(path, json=documents(first))
        if answer.status_code == 202:
            task = small.finished(answer.json())
            if task["status"] == "succeeded":
                continue
            told = 202, task["error"]["code"]
        else:
            told = answer.status_code, answer.json()["code"]
        break
    # Told at once, or by the task where it was accepted just before.
    assert told in {(422, "no_space_left_on_device"), (202, "no_space_left_on_device")}
    used = sum(each.stat().st_size for each in small.data.rglob("*") if each.is_file())
    assert used < 3 * STORAGE_BYTES
    # Searches go on, and what makes room is done.
    assert small.ask("POST", "/indexes/full/search", {"q": "word7"})["hits"]
    small.done("DELETE", path)

    def fits() -> bool:
        with small.client() as client:
            answer = client.post(path, json=documents(0, 1))
        if answer.status_code != 202:
            return False
        return bool(small.finished(answer.json())["status"] == "succeeded")

    until(fits, "there is room again")


def test_a_task_that_needs_too_much_memory_fails_alone(small: Service) -> None:
    before = small.ask("POST", "/indexes/m/documents", [{"id": 1, "text": "hello"}], status=202)
    body = orjson.dumps([{"id": 2, "text": "ab " * 3_000_000}])
    headers = {"Content-Type": "application/json"}
    with small.client() as client:
        large = client.post("/indexes/m/documents", content=body, headers=headers).json()
    after = small.ask("POST", "/indexes/m/documents", [{"id": 3, "text": "hello"}], status=202)
    failed = small.finished(large)
    assert failed["status"] == "failed"
    assert "needs more memory than indexing has" in failed["error"]["message"]
    assert failed["details"]["indexedDocuments"] == 0
    small.finished(before)
    assert small.finished(after)["status"] == "succeeded"
    until(small.is_healthy, "indexing goes on")
    found = small.ask("POST", "/indexes/m/search", {"q": "hello"})["hits"]
    assert 3 in [hit["id"] for hit in found]


def test_an_answer_has_no_more_documents_than_a_request_may_bring(tmp_path: Path) -> None:
    """Who may only search could use up the memory else."""
    with running(tmp_path, "--body-bytes", "2000000") as service:
        service.done("POST", "/indexes/a/documents", documents(0, 50, 30_000))
        query = {"indexUid": "a", "limit": 50}
        for _ in range(12):
            assert len(service.ask("POST", "/indexes/a/search", {"limit": 50})["hits"]) == 50
        assert len(service.ask("GET", "/indexes/a/documents?limit=50")["results"]) == 50
        refused = (400, "bad_request")
        assert service.refused("POST", "/multi-search", {"queries": [query] * 2}) == refused
        long = {"q": "word7", "attributesToHighlight": ["*"], "highlightPreTag": "x" * 1_900_000}
        assert service.refused("POST", "/indexes/a/search", long) == refused
        found = service.ask("POST", "/indexes/a/search", {"q": "word7"})["hits"]
        assert found[0]["id"] == 7


def test_what_may_be_large_may_take_as_long_as_it_needs() -> None:
    assert arrival_s(10 * 2**20) == 30
    assert arrival_s(100 * 2**20) > 200


class Queue:
    """An indexer in this process, as one that ends leaves it."""

    def __init__(self, folder: Path) -> None:
        databases.make(folder)
        self.folder = folder
        self.tasks = TaskQueue(databases.open_tasks(folder))

    def add(self, text: str = "hello") -> int:
        payload = {"isPartial": False, "primaryKey": "id", "documents": [{"id": 1, "text": text}]}
        summary = self.tasks.accept("documentAdditionOrUpdate", "x", {}, orjson.dumps(payload))
        return int(summary["taskUid"])

    def statuses(self, uids: list[int]) -> list[str]:
        return [(self.tasks.get(uid) or {})["status"] for uid in uids]


def test_a_batch_that_ended_the_process_is_done_task_by_task(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    uids = [queue.add() for _ in range(3)]
    assert len(queue.tasks.claim(10, BATCH_BYTES_MAX)) == 3
    indexer = Indexer(tmp_path)
    indexer.recover(after_crash=True)
    assert queue.statuses(uids) == ["enqueued"] * 3
    assert indexer.step()
    assert queue.statuses(uids) == ["succeeded", "enqueued", "enqueued"]
    # The second one ends it again, now alone.
    assert len(queue.tasks.claim(1, BATCH_BYTES_MAX)) == 1
    indexer.close()
    indexer = Indexer(tmp_path)
    indexer.recover(after_crash=True)
    assert queue.statuses(uids) == ["succeeded", "failed", "enqueued"]
    uids += [queue.add(), queue.add()]
    while indexer.step():
        pass
    assert queue.statuses(uids) == ["succeeded", "failed", *["succeeded"] * 3]
    indexer.close()


@pytest.mark.parametrize("after_crash", [False, True])
def test_a_task_is_tried_again_before_it_fails(tmp_path: Path, *, after_crash: bool) -> None:
    """Somebody else may have ended the process, or it had used its memory for others."""
    queue = Queue(tmp_path)
    uid = queue.add()
    assert queue.tasks.claim(1, BATCH_BYTES_MAX)
    indexer = Indexer(tmp_path)
    indexer.recover(after_crash=after_crash)
    while indexer.step():
        pass
    assert queue.statuses([uid]) == ["succeeded"]
    indexer.close()


def test_candidates_that_were_not_made_to_the_end_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nothing would be found in what they are of."""
    queue = Queue(tmp_path)
    queue.add()
    indexer = Indexer(tmp_path)
    assert indexer.step()
    indexer.close()
    shutil.rmtree(tmp_path / databases.CANDIDATES)

    def ended(_: object) -> None:
        assert (tmp_path / databases.OPENING).exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(candidates.CandidateWriter, "commit", ended)
        indexer = Indexer(tmp_path)
        with pytest.raises(KeyboardInterrupt):
            indexer.recover()
        indexer.close()
    indexer = Indexer(tmp_path)
    indexer.recover()
    indexer.close()
    (number,) = (int(each.name) for each in (tmp_path / databases.CANDIDATES).iterdir())
    searcher = candidates.Candidates(tmp_path / databases.CANDIDATES).searcher(number)
    assert candidates.frequency(searcher, "hello") == 1
    assert not (tmp_path / databases.OPENING).exists()


def test_a_batch_brings_no_more_than_fits(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    uids = [queue.add("x" * 1_000) for _ in range(4)]
    assert [task.uid for task in queue.tasks.claim(10, 2_500)] == uids[:2]
    # The first is done however large it is.
    assert [task.uid for task in queue.tasks.claim(10, 10)] == uids[2:3]


def test_a_change_of_settings_takes_as_long_as_there_are_documents(tmp_path: Path) -> None:
    """And not by their square: counted is what the database does."""

    def work(count: int) -> int:
        queue = Queue(tmp_path / str(count))
        payload = {"isPartial": False, "primaryKey": "id", "documents": documents(0, count, 10)}
        queue.tasks.accept("documentAdditionOrUpdate", "x", {}, orjson.dumps(payload))
        indexer = Indexer(queue.folder)
        assert indexer.step()
        changes = orjson.dumps({"filterableAttributes": ["id"]})
        queue.tasks.accept("settingsUpdate", "x", {}, changes)
        ticks: list[None] = []
        indexer._data.set_progress_handler(lambda: ticks.append(None), 100)
        assert indexer.step()
        indexer.close()
        return len(ticks)

    for count in (500, 1_000):
        (tmp_path / str(count)).mkdir()
    assert work(1_000) < 3 * work(500)
