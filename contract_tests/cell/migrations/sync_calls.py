"""What the tests of migrations that follow their source ask of a cell, whatever the engine."""

import os
import signal
from contextlib import suppress
from typing import Any

import httpx

from contract_tests.cell.migrations.migration_calls import observed, path_of, status_is
from contract_tests.cell.rig import Rig, until


def level(rig: Rig, instance_id: str, migration_id: str) -> None:
    def is_level() -> bool:
        seen = observed(rig, instance_id, migration_id)
        assert seen["status"] == "syncing", seen
        progress = seen["progress"]
        return (progress["lag_bytes"], progress["lag_s"], seen["reason"]) == (0, 0.0, None)

    until(is_level, "the instance is level")


def ask_to_cut_over(
    rig: Rig, instance_id: str, migration_id: str, way_back_s: int = 0
) -> httpx.Response:
    path = f"{path_of(instance_id, migration_id)}/actions/cutover"
    return rig.act("POST", path, {"keep_way_back_s": way_back_s})


def cut_over(rig: Rig, instance_id: str, migration_id: str, way_back_s: int = 0) -> None:
    answer = ask_to_cut_over(rig, instance_id, migration_id, way_back_s)
    assert answer.status_code == 200, answer.text


def completed(rig: Rig, instance_id: str, migration_id: str) -> dict[str, Any]:
    cut_over(rig, instance_id, migration_id)
    seen = status_is(rig, instance_id, migration_id, "completed")
    assert seen["verification"]["differences"] == []
    return seen


def come_to(rig: Rig, instance_id: str, migration_id: str, wanted: str) -> None:
    """A sync to that state, if it can be seen there: it may be past it at once."""
    if wanted == "preflight":
        return
    status_is(rig, instance_id, migration_id, "syncing")
    if wanted != "syncing":
        cut_over(rig, instance_id, migration_id)
        with suppress(AssertionError):
            until(
                lambda: observed(rig, instance_id, migration_id)["status"] == wanted,
                f"it is {wanted}",
                within_s=1,
            )


def cancelled(rig: Rig, instance_id: str, migration_id: str) -> None:
    answer = rig.act("DELETE", path_of(instance_id, migration_id))
    assert answer.status_code == 200, answer.text
    status_is(rig, instance_id, migration_id, "cancelled")


def kill(rig: Rig, instance_id: str, victim: str) -> None:
    """The cell, which comes back, or the engine of an instance."""
    if victim == "cell":
        rig.kill()
        rig.start()
    else:
        os.kill(rig.engine_pid(instance_id), signal.SIGKILL)
