"""Which workflows exist: a function by its kind, with its deadline and its way out."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy.orm import Session

if TYPE_CHECKING:  # an operation's queue asks this register for its kind
    from control.work.operation import Operation

Steps = Callable[["Operation"], None]
WayOut = Callable[["Operation", Session, str], None]
"""Called once, in the transaction that ends the operation: (operation, db, reason)."""


@dataclass(frozen=True)
class Workflow:
    kind: str
    run: Steps
    deadline_s: float
    on_failure: WayOut | None


_workflows: Final[dict[str, Workflow]] = {}


def workflow(
    kind: str, *, deadline_s: float, on_failure: WayOut | None = None
) -> Callable[[Steps], Steps]:
    """Register a workflow. `deadline_s` counts from its first start, retries included."""

    def register(run: Steps) -> Steps:
        if kind in _workflows:
            raise ValueError(f"there are two workflows called {kind}")
        _workflows[kind] = Workflow(kind, run, deadline_s, on_failure)
        return run

    return register


def find(kind: str) -> Workflow:
    """The workflow of that kind; KeyError where there is none."""
    if kind not in _workflows:
        importlib.import_module("control.workflows")
    return _workflows[kind]


def kinds() -> list[str]:
    """Every kind this program can run; work of a newer program waits for a newer worker."""
    importlib.import_module("control.workflows")
    return sorted(_workflows)


def forget(kind: str) -> None:
    """Take a workflow out again, as tests do with their own."""
    _workflows.pop(kind, None)
