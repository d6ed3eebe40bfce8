"""An operation under way: its arguments, its finished steps, and the lease it runs under."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from control.work import queue
from control.work.errors import Again, LeaseLost
from specserver import tracing
from storage.database import Database
from storage.work import Work

if TYPE_CHECKING:  # services name the room that names this one
    from control.services import Services


class Operation:
    """What a workflow is given; its steps are known by name, so a later program may add more."""

    def __init__(self, work: Work, services: "Services") -> None:
        self.id = work.operation
        self.kind = work.kind
        self.lane = work.lane
        self.args: dict[str, Any] = dict(work.args)
        self.attempts = work.attempts
        self.services = services
        self.held = queue.Lease(work.seq, work.lease)
        # Set by the worker's other threads; looked at before every step.
        self.lost = False
        self.interrupted = False
        self._steps: dict[str, Any] = dict(work.steps)

    @property
    def database(self) -> Database:
        return self.services.database

    @property
    def lease(self) -> int:
        """Grows with every claim; who is shown an older one must refuse."""
        return self.held.number

    def key(self, step: str) -> str:
        """The same for every try of a step, so that outside effects can be deduplicated."""
        return f"{self.id}:{step}"

    def step(self, name: str, act: Callable[[], Any]) -> Any:
        """Do `act` until it once succeeds; its result (JSON) is kept and answered from then on.

        A kill between the act and the note repeats the act, so it must bear that: give outside
        calls `key(name)`.
        """
        if name not in self._steps:
            self._check()
            with tracing.span(f"{self.kind} {name}"):
                result = act()
            with self.database.write() as db:
                self._note(db, name, result)
        return self._steps[name]

    def step_in_transaction(self, name: str, act: Callable[[Session], Any]) -> Any:
        """Do `act` exactly once: what it writes and the note of it are one transaction."""
        if name not in self._steps:
            self._check()
            with tracing.span(f"{self.kind} {name}"), self.database.write() as db:
                # The note goes first: it holds the row, so a lost lease writes nothing at all.
                self._note(db, name, None)
                result = act(db)
                if result is not None:
                    self._note(db, name, result)
        return self._steps[name]

    def _check(self) -> None:
        if self.lost:
            raise LeaseLost(f"operation {self.id} lost its lease")
        if self.interrupted:
            raise Again(0)

    def _note(self, db: Session, name: str, result: Any) -> None:
        steps = {**self._steps, name: result}
        queue.checkpoint(db, self.held, steps=steps)
        self._steps = steps
