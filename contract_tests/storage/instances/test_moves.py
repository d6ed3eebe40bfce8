"""From which status an instance may go where, and what a refusal says: each move in each status."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from storage.errors import StateConflict
from storage.instances.instances import STATUSES, Instance, told_of

AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
LATER = AT + timedelta(days=1)
ALL = set(STATUSES)


def one(status: str, desired: str = "running", *, by: str | None = None) -> Instance:
    """With data, and a reason why it waits."""
    return Instance(
        status=status, desired_status=desired, ready_at=AT, paused_by=by, status_reason="waits"
    )


MOVES: dict[str, tuple[Callable[[Instance], None], set[str], str]] = {
    "pause": (Instance.pause, {"running"}, "pausing"),
    "resume": (Instance.resume, {"paused"}, "resuming"),
    "change": (lambda it: it.change(waits=True), {"running", "failed"}, "resizing"),
    "restore": (Instance.restore, {"running", "failed"}, "restoring"),
    "delete": (
        lambda it: it.delete(LATER),
        ALL - {"deleting", "deleted", "erasing", "erased"},
        "deleting",
    ),
    "undelete": (lambda it: it.undelete(AT), {"deleted"}, "resuming"),
    "erase": (Instance.erase, ALL - {"erasing", "erased"}, "erasing"),
    "provision": (Instance.provisioning, {"requested", "provisioning"}, "provisioning"),
    "run": (
        lambda it: it.became_running(LATER),
        {
            *("provisioning", "resuming", "resizing", "restoring", "pausing", "paused"),
            *("failed", "running"),
        },
        "running",
    ),
    "record as paused": (
        lambda it: it.became_paused("idle"),
        {"pausing", "running", "resuming", "restoring", "failed"},
        "paused",
    ),
    "record as deleted": (Instance.became_deleted, {"deleting"}, "deleted"),
    "record as erased": (Instance.became_erased, {"erasing"}, "erased"),
}


HINTS = {
    ("undelete", "deleting"): "; wait until it is deleted",
    ("restore", "paused"): "; resume it first",
}


@pytest.mark.parametrize("verb", MOVES)
@pytest.mark.parametrize("status", STATUSES)
def test_a_move_is_made_from_where_it_may_be_and_else_refused(verb: str, status: str) -> None:
    move, allowed, then = MOVES[verb]
    instance = one(status)
    if status in allowed:
        move(instance)
        assert (instance.status, instance.status_reason) == (then, None)
        return
    hint = HINTS.get((verb, status), "")
    with pytest.raises(StateConflict) as refused:
        move(instance)
    assert refused.value.detail == f"cannot {verb} an instance that is {status}{hint}"
    assert (instance.status, instance.status_reason) == (status, "waits")


@pytest.mark.parametrize("status", STATUSES)
def test_one_fails_wherever_there_is_something_left(status: str) -> None:
    instance = one(status)
    if status in {"deleted", "erased"}:
        with pytest.raises(StateConflict, match=f"cannot fail an instance that is {status}$"):
            instance.became_failed("no disk")
        return
    instance.became_failed("no disk")
    assert (instance.status, instance.status_reason) == ("failed", "no disk")


@pytest.mark.parametrize("status", ["deleted", "failed"])
def test_nothing_brings_one_back_that_is_to_go(status: str) -> None:
    going = " and to be deleted" if status == "failed" else ""
    moves: dict[str, Callable[[Instance], None]] = {
        "run": lambda it: it.became_running(LATER),
        "record as paused": lambda it: it.became_paused("user"),
        "change": lambda it: it.change(waits=False),
    }
    for verb, move in moves.items():
        with pytest.raises(StateConflict) as refused:
            move(one(status, "deleted"))
        assert refused.value.detail == f"cannot {verb} an instance that is {status}{going}"
    with pytest.raises(StateConflict) as refused:
        one(status, "deleted").change(waits=True)
    assert refused.value.detail == f"cannot change an instance that is {status}{going}"


def test_a_delete_takes_no_erasure_back_that_failed() -> None:
    instance = one("failed", "erased")
    with pytest.raises(StateConflict) as refused:
        instance.delete(LATER)
    assert refused.value.detail == "cannot delete an instance that is failed and to be erased"
    assert (instance.status, instance.desired_status, instance.purge_after) == (
        *("failed", "erased"),
        None,
    )


def test_a_delete_that_failed_keeps_the_end_of_its_retention() -> None:
    instance = one("running")
    instance.delete(LATER)
    instance.became_failed("no disk")
    instance.delete(LATER + timedelta(days=30))
    assert (instance.status, instance.purge_after) == ("deleting", LATER)


def test_what_is_wanted_follows_what_was_asked() -> None:
    paused = one("running")
    paused.pause()
    assert paused.desired_status == "paused"
    resumed = one("paused", "paused")
    resumed.resume()
    assert resumed.desired_status == "running"
    erased = one("running")
    erased.erase()
    assert erased.desired_status == "erased"
    running = one("paused", "paused", by="user")
    running.became_running(LATER)
    assert (running.desired_status, running.paused_by, running.ready_at) == ("running", None, AT)
    first = one("provisioning")
    first.ready_at = None
    first.became_running(LATER)
    assert first.ready_at == LATER
    idle = one("running")
    idle.became_paused("idle")
    assert (idle.desired_status, idle.paused_by) == ("paused", "idle")


@pytest.mark.parametrize(
    ("desired", "by", "kept_by", "then"),
    [
        ("running", None, None, "running"),
        ("running", "user", None, "running"),
        ("paused", None, "user", "paused"),
        ("paused", "user", "user", "paused"),
        ("paused", "idle", "idle", "running"),
    ],
)
def test_a_delete_that_is_taken_back_leaves_it_as_it_was(
    desired: str, by: str | None, kept_by: str | None, then: str
) -> None:
    instance = one("paused", desired, by=by)
    instance.delete(LATER)
    assert (instance.desired_status, instance.purge_after) == ("deleted", LATER)
    assert instance.paused_by == kept_by
    instance.became_deleted()
    instance.undelete(LATER - timedelta(seconds=1))
    assert (instance.desired_status, instance.purge_after) == (then, None)


def test_what_has_no_data_any_more_is_not_taken_back() -> None:
    instance = one("deleted", "deleted")
    instance.purge_after = LATER
    with pytest.raises(StateConflict) as refused:
        instance.undelete(LATER)
    assert refused.value.detail == (
        "cannot undelete an instance that is deleted and was kept until 2026-01-03T03:04:05+00:00"
    )
    instance.ready_at = None
    with pytest.raises(StateConflict) as refused:
        instance.undelete(AT)
    assert refused.value.detail == (
        "cannot undelete an instance that is deleted and never ran: it has no data; order a new one"
    )


def test_what_cannot_be_changed_has_no_data() -> None:
    for instance in (one("failed", "paused"), one("failed")):
        instance.ready_at = None
        with pytest.raises(StateConflict, match=r"^cannot change an instance that is failed$"):
            instance.change(waits=True)
    one("paused", "paused").change(waits=False)


@pytest.mark.parametrize(
    ("change", "then"),
    [(lambda it: it.change(waits=True), "resizing"), (Instance.restore, "restoring")],
)
@pytest.mark.parametrize(("by", "needs_room"), [("user", True), ("idle", False)])
def test_one_that_failed_to_resume_or_wake_is_changed_to_run(
    change: Callable[[Instance], None], then: str, by: str, *, needs_room: bool
) -> None:
    instance = one("failed", "paused", by=by)
    assert instance.needs_room is needs_room
    change(instance)
    assert (instance.status, instance.desired_status, instance.needs_room) == (
        *(then, "running"),
        False,
    )


@pytest.mark.parametrize("status", STATUSES)
def test_why_it_waits_is_told_while_it_waits(status: str) -> None:
    instance = one(status)
    instance.is_held_up("the cell is full")
    settled = {"running", "paused", "failed", "deleted", "erased"}
    assert instance.status_reason == ("waits" if status in settled else "the cell is full")


@pytest.mark.parametrize("status", STATUSES)
def test_a_branch_begins_with_data(status: str) -> None:
    if status in {"running", "paused"}:
        one(status).check_branchable()
        return
    with pytest.raises(StateConflict, match=f"^cannot branch an instance that is {status}$"):
        one(status).check_branchable()


@pytest.mark.parametrize("status", STATUSES)
def test_what_was_lost_is_recovered_and_is_to_be_as_it_was(status: str) -> None:
    instance = one(status, "paused" if status == "paused" else "running", by="user")
    wanted = instance.desired_status
    if status not in {"running", "paused", "failed"}:
        with pytest.raises(StateConflict, match=f"cannot recover an instance that is {status}$"):
            instance.recover("lost")
        return
    instance.recover("lost")
    assert (instance.status, instance.status_reason) == ("restoring", "lost")
    assert (instance.desired_status, instance.paused_by) == (wanted, "user")


@pytest.mark.parametrize("desired", ["deleted", "erased"])
def test_what_is_to_go_is_not_recovered(desired: str) -> None:
    with pytest.raises(StateConflict) as refused:
        one("failed", desired).recover("lost")
    assert refused.value.detail == f"cannot recover an instance that is failed and to be {desired}"


@pytest.mark.parametrize("status", STATUSES)
def test_what_has_data_that_nothing_changes_is_backed_up(status: str) -> None:
    without_data = one(status)
    without_data.ready_at = None
    refused = [without_data]
    if status in {"running", "paused", "failed"}:
        one(status).check_backed_up()
    else:
        refused.append(one(status))
    for instance in refused:
        with pytest.raises(StateConflict, match=f"^cannot back up an instance that is {status}$"):
            instance.check_backed_up()


@pytest.mark.parametrize("desired", ["deleted", "erased"])
def test_what_is_to_go_is_not_backed_up(desired: str) -> None:
    with pytest.raises(StateConflict) as refused:
        one("failed", desired).check_backed_up()
    assert refused.value.detail == f"cannot back up an instance that is failed and to be {desired}"


@pytest.mark.parametrize(
    ("waits", "cell", "told"),
    [
        (None, None, None),
        ("waits", None, "waits"),
        (None, "no memory", "no memory"),
        ("waits", "no memory", "waits; no memory"),
        ("no memory", "no memory", "no memory"),
    ],
)
def test_all_reasons_are_told_once(waits: str | None, cell: str | None, told: str | None) -> None:
    assert told_of(Instance(status_reason=waits, cell_reason=cell)) == told


@pytest.mark.parametrize("verb", MOVES)
def test_what_a_cell_tells_of_an_engine_holds_while_it_runs(verb: str) -> None:
    move, allowed, then = MOVES[verb]
    for status in allowed:
        instance = one(status)
        instance.cell_reason = "no memory"
        move(instance)
        runs = then in {"running", "pausing", "resizing"}
        assert instance.cell_reason == ("no memory" if runs else None)
