"""What an observation means for a record at rest: asleep, awake, failed, gone, rotated."""

from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.workflows.instances.subjects import publish, publish_failed, publish_ready
from storage.instances.instances import GONE, Instance

SETTLED: Final = frozenset({"running", "paused", "failed"})
"""Statuses with no work under way, in which the cell's word counts."""
LOST: Final = "the cell no longer has the instance"

ROTATIONS_MAX: Final = 20
"""Told of at once, one by one. A number from a cell must not become as many events."""
AGAIN: Final = "started again"
"""How a cell begins to say why an engine that runs has ended before."""


def differs(instance: Instance, observation: Answer | None) -> bool:
    """Whether `apply` would change anything; cheap, and asked for every instance every time."""
    if instance.desired_status in GONE:
        return False
    if observation is None:
        return instance.status != "failed"
    return (
        _status(instance, observation) != instance.status
        or _rotated(instance, observation)
        or _cell_reason(instance, observation) != instance.cell_reason
        or (observation.get("port") or instance.port) != instance.port
    )


def apply(db: Session, instance: Instance, observation: Answer | None, moment: datetime) -> None:
    """Bring the record to what was observed, with the event of each change."""
    if not differs(instance, observation):
        return
    if observation is None:
        _fail(db, instance, LOST)
        return
    instance.port = observation.get("port") or instance.port
    if _rotated(instance, observation):
        _record_rotations(db, instance, observation)
    _record_reason(db, instance, _cell_reason(instance, observation))
    status = _status(instance, observation)
    if status == instance.status:
        return
    if status == "failed":
        _fail(db, instance, observation.get("status_reason") or "the engine does not run")
    elif status == "paused":
        paused_by = "idle" if observation.get("paused_by") == "idle" else "user"
        instance.became_paused(paused_by)
        publish(db, instance, "instance.paused.v1", paused_by=paused_by)
    else:
        _run(db, instance, moment)


def _status(instance: Instance, observation: Answer) -> str:
    """The settled status observed; while the cell restarts an engine, the record stays."""
    status = str(observation["status"])
    return status if status in SETTLED else instance.status


def _cell_reason(instance: Instance, observation: Answer) -> str | None:
    """What the cell tells of an engine that runs; of another, what is known stays as it is."""
    if instance.status == observation["status"] == "running":
        return observation.get("status_reason") or None
    return instance.cell_reason


def _record_reason(db: Session, instance: Instance, reason: str | None) -> None:
    """An event only where an engine ended and runs again: once, whatever else is told of it."""
    before, instance.cell_reason = instance.cell_reason, reason
    if reason is not None and reason.startswith(AGAIN) and _begins(reason) != _begins(before):
        publish_failed(db, instance, "run", reason)


def _begins(reason: str | None) -> str:
    """Up to the moment at which an engine was started again."""
    return (reason or "").partition(": ")[0]


def _credentials(observation: Answer) -> tuple[int, str | None]:
    """The number of the newest credential, and until when an older one is valid too."""
    told = observation.get("credentials") or {}
    return int(told.get("generation") or 0), told.get("overlap_until")


def _rotated(instance: Instance, observation: Answer) -> bool:
    """Whether a rotation began or ended that the record has not heard of."""
    generation, overlap_until = _credentials(observation)
    ended = instance.credentials_overlap_until is not None and overlap_until is None
    return generation > instance.credentials_generation or ended


def _record_rotations(db: Session, instance: Instance, observation: Answer) -> None:
    """Each rotation is told as it begins, and once more when no older credential works any more.

    The cell says how often it rotated: what began and ended since the last look is told too, of
    many the last ones.
    """
    generation, overlap_until = _credentials(observation)
    kind = "instance.credentials.rotated.v1"
    # The first credential replaces none.
    first = max(instance.credentials_generation, 1) + 1
    begun = range(max(first, generation + 1 - ROTATIONS_MAX), generation + 1)
    for number in begun:
        publish(db, instance, kind, phase="started", generation=number, overlap_until=overlap_until)
    overlapped = bool(begun) or instance.credentials_overlap_until is not None
    if overlapped and overlap_until is None:
        publish(db, instance, kind, phase="completed", generation=generation, overlap_until=None)
    instance.credentials_generation = generation
    instance.credentials_overlap_until = (
        datetime.fromisoformat(overlap_until) if overlap_until else None
    )


def _run(db: Session, instance: Instance, moment: datetime) -> None:
    was = instance.status
    instance.became_running(moment)
    if was == "paused":
        publish(db, instance, "instance.resumed.v1", resumed_by="connection")
    else:
        publish_ready(db, instance)


def _fail(db: Session, instance: Instance, reason: str) -> None:
    instance.became_failed(reason)
    publish_failed(db, instance, "run", reason)
