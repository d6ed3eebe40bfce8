"""The transitions of an instance against a model: a table of what is allowed from where."""

from datetime import timedelta
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from storage.columns import EPOCH
from storage.errors import StateConflict
from storage.instances.instances import GONE, STATUSES, Instance

GOING: Final = {"deleting", "deleted", "erasing", "erased"}
LIVE: Final = set(STATUSES) - GOING
# One whose data is brought back may have been paused.
PAUSABLE: Final = ("pausing", "running", "resuming", "restoring", "failed")
ALLOWED: Final = {
    "pause": {"running": "pausing"},
    "resume": {"paused": "resuming"},
    "resize": dict.fromkeys(("running", "failed"), "resizing"),
    "restore": dict.fromkeys(("running", "failed"), "restoring"),
    "rename": {status: status for status in LIVE},
    "delete": dict.fromkeys(LIVE, "deleting"),
    "undelete": {"deleted": "resuming"},
    "erase": dict.fromkeys(LIVE | {"deleting", "deleted"}, "erasing"),
    "provisioning": dict.fromkeys(("requested", "provisioning"), "provisioning"),
    "became_running": dict.fromkeys(
        (
            *("provisioning", "resuming", "resizing", "restoring", "pausing", "paused"),
            *("failed", "running"),
        ),
        "running",
    ),
    "became_paused": dict.fromkeys(PAUSABLE, "paused"),
    "became_idle": dict.fromkeys(PAUSABLE, "paused"),
    "became_failed": dict.fromkeys(LIVE | {"deleting", "erasing"}, "failed"),
    "became_deleted": {"deleting": "deleted"},
    "became_erased": {"erasing": "erased"},
}
ACTS: Final = {
    "pause": lambda instance: instance.pause(),
    "resume": lambda instance: instance.resume(),
    "resize": lambda instance: instance.change(waits=True),
    "restore": lambda instance: instance.restore(),
    "rename": lambda instance: instance.change(waits=False),
    "delete": lambda instance: instance.delete(None),
    "undelete": lambda instance: instance.undelete(EPOCH),
    "erase": lambda instance: instance.erase(),
    "provisioning": lambda instance: instance.provisioning(),
    "became_running": lambda instance: instance.became_running(EPOCH),
    "became_paused": lambda instance: instance.became_paused("user"),
    "became_idle": lambda instance: instance.became_paused("idle"),
    "became_failed": lambda instance: instance.became_failed("a reason"),
    "became_deleted": lambda instance: instance.became_deleted(),
    "became_erased": lambda instance: instance.became_erased(),
}


class Lifecycle(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.instance = Instance(status="requested", desired_status="running")
        self.status = "requested"
        self.going = False
        self.before_delete = ""

    @rule(verb=st.sampled_from(sorted(ACTS)))
    def act(self, verb: str) -> None:
        before = dict(self.instance.__dict__)
        self._note_what_undelete_restores(verb)
        if self.going and verb in {"became_running", "became_paused", "became_idle", "rename"}:
            # A failed delete stays a delete: nothing brings the instance back to life.
            expected = None
        elif verb == "delete" and self.instance.desired_status == "erased":
            # Nor does anything take back a failed erasure.
            expected = None
        elif verb == "undelete" and self.instance.ready_at is None:
            # What never ran has no data to come back with.
            expected = None
        elif verb in {"resize", "restore"} and self.status == "failed" and not self._has_data():
            expected = None
        else:
            expected = ALLOWED[verb].get(self.status)
        if expected is None:
            with pytest.raises(
                StateConflict, match=f"^cannot .* an instance that is {self.status}"
            ):
                ACTS[verb](self.instance)
            assert {k: v for k, v in self.instance.__dict__.items() if k in before} == before
            return
        ACTS[verb](self.instance)
        self.status = expected
        if verb in {"resize", "restore"}:
            assert self.instance.desired_status == "running"
        if verb in {"delete", "erase"}:
            self.going = True
        elif verb == "undelete":
            self.going = False
            assert self.instance.desired_status == self.before_delete
            assert self.instance.purge_after is None

    def _has_data(self) -> bool:
        """And is to keep it."""
        return self.instance.ready_at is not None and not self.going

    def _note_what_undelete_restores(self, verb: str) -> None:
        """As it was to be when it was deleted, but what was idle is to run."""
        if verb == "delete" and self.status in LIVE and not self.going:
            idle = self.instance.paused_by == "idle"
            self.before_delete = "running" if idle else self.instance.desired_status

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert self.instance.status == self.status
        assert (self.instance.desired_status in GONE) == self.going
        assert (self.instance.status_reason is not None) == (self.status == "failed")

    @invariant()
    def has_a_ready_moment_once_it_ran(self) -> None:
        if self.status in {"running", "pausing", "resizing"}:
            assert self.instance.ready_at is not None


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=150, stateful_step_count=30)


@pytest.mark.parametrize("seconds", [0, 1])
def test_what_is_no_longer_kept_is_not_undeleted(seconds: int) -> None:
    gone = Instance(status="deleted", desired_status="deleted", ready_at=EPOCH, purge_after=EPOCH)
    with pytest.raises(StateConflict, match="that is deleted and was kept until 1970-01-01"):
        gone.undelete(EPOCH + timedelta(seconds=seconds))
    assert gone.status == "deleted"
    gone.undelete(EPOCH - timedelta(microseconds=1))
    assert (gone.status, gone.desired_status, gone.purge_after) == ("resuming", "running", None)


def test_every_status_has_a_way_to_be_gone() -> None:
    for status in set(STATUSES) - {"erased", "erasing"}:
        instance = Instance(status=status, desired_status="running")
        instance.erase()
        instance.became_erased()
        assert instance.status == "erased"
