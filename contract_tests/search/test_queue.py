"""Owns the promises about the queue: what is done together, and that it does not grow forever."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from instance_services.search import databases
from instance_services.search.batches import BatchHistory
from instance_services.search.errors import ApiError
from instance_services.search.indexing import Indexer
from instance_services.search.tasks import Filters, QueueLimits, TaskQueue

LIMITS = QueueLimits(tasks=10, pruned=4, payload_bytes=2_000)


class Queue:
    """A queue and its indexer, in this process."""

    def __init__(self, folder: Path) -> None:
        databases.make(folder)
        self.tasks = databases.open_tasks(folder)
        self.queue = TaskQueue(self.tasks, limits=LIMITS)
        self.batches = BatchHistory(self.tasks)
        self.indexer = Indexer(folder, limits=LIMITS)

    def add(self, index: str = "a", text: str = "") -> int:
        documents = [{"id": 1, "text": text}]
        payload = {"isPartial": False, "primaryKey": "id", "documents": documents}
        details = {"receivedDocuments": 1, "indexedDocuments": None}
        found = self.queue.accept("documentAdditionOrUpdate", index, details, orjson.dumps(payload))
        return int(found["taskUid"])

    def batch_of(self, uid: int) -> Any:
        return (self.queue.get(uid) or {})["batchUid"]

    def do_all(self) -> None:
        while self.indexer.step():
            pass


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    made = Queue(tmp_path)
    yield made
    made.indexer.close()
    made.tasks.close()


def test_changes_of_documents_of_one_index_are_a_batch(queue: Queue) -> None:
    uids = [queue.add(), queue.add("b"), queue.add()]
    assert queue.batch_of(uids[0]) is None
    queue.do_all()
    assert [queue.batch_of(uid) for uid in uids] == [0, 1, 0]
    page = queue.batches.page(Filters(), limit=1)
    assert (page["total"], page["from"], page["next"]) == (2, 1, 0)
    (batch,) = queue.batches.page(Filters(index_uids=["a"]))["results"]
    assert batch["details"] == {"receivedDocuments": 2, "indexedDocuments": 2}
    assert batch["stats"]["status"] == {"succeeded": 2}
    assert (batch["finishedAt"] > batch["startedAt"], batch["duration"][:2]) == (True, "PT")
    # Whoever may not see an index is not told of its tasks.
    assert queue.batches.get(0, ["b"]) is None
    assert queue.batches.page(Filters(allowed=["b"]))["total"] == 1


def test_what_is_canceled_is_in_the_batch_of_its_cancelation(queue: Queue) -> None:
    waiting = queue.add()
    by = queue.queue.accept("taskCancelation", None, {}, orjson.dumps({"uids": [waiting]}))
    queue.do_all()
    task = queue.queue.get(waiting) or {}
    assert (task["status"], task["canceledBy"], task["batchUid"]) == ("canceled", by["taskUid"], 0)
    batch = queue.batches.get(0, None) or {}
    assert batch["stats"]["status"] == {"canceled": 1, "succeeded": 1}


def test_the_oldest_finished_tasks_are_deleted_by_a_task(queue: Queue) -> None:
    for _ in range(9):
        queue.add()
        queue.do_all()
    queue.add()
    queue.do_all()
    kept = [task["uid"] for task in queue.queue.page(Filters(), limit=100)["results"]]
    assert kept == [10, 9, 8, 7, 6, 5, 4]
    pruning = queue.queue.get(10) or {}
    assert (pruning["type"], pruning["status"]) == ("taskDeletion", "succeeded")
    assert pruning["details"]["deletedTasks"] == 4
    assert queue.add() == 11


def test_no_more_tasks_wait_than_there_is_room_for(queue: Queue) -> None:
    for number in range(LIMITS.tasks + LIMITS.pruned):
        queue.add(f"index{number}")
    with pytest.raises(ApiError) as many:
        queue.add()
    assert (many.value.code, many.value.status) == ("no_space_left_on_device", 422)
    # What makes room is accepted all the same.
    queue.queue.accept("taskCancelation", None, {}, orjson.dumps({"uids": [1]}))
    queue.do_all()
    queue.add()
    with pytest.raises(ApiError):
        queue.add(text="x" * 2_000)
    queue.do_all()
    assert queue.tasks.execute("SELECT payload_bytes FROM queue").fetchone() == (0,)


def test_a_full_storage_refuses_a_task(queue: Queue) -> None:
    (pages,) = queue.tasks.execute("PRAGMA page_count").fetchone()
    queue.tasks.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(ApiError) as full:
        queue.queue.accept("indexCreation", "a", {"primaryKey": "x" * 10_000})
    assert full.value.code == "no_space_left_on_device"
    assert not queue.tasks.in_transaction
