"""All that a worker can run, and what comes round by itself: what composition hands to it."""

import importlib
import pkgutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import ModuleType

from control.work.schedules import Schedule
from control.work.workflow import Workflow


@dataclass(frozen=True)
class Registry:
    """Workflows by kind; work of a kind that is not among them waits for a newer worker."""

    workflows: Mapping[str, Workflow]
    schedules: tuple[Schedule, ...] = ()

    @property
    def deadlines(self) -> dict[str, float]:
        """Seconds by kind."""
        return {kind: each.deadline_s for kind, each in self.workflows.items()}


def registry_of(*workflows: Workflow, schedules: Collection[Schedule] = ()) -> Registry:
    """Raises ValueError where two workflows or two schedules have one name."""
    by_kind = {each.kind: each for each in workflows}
    if len(by_kind) < len(workflows):
        raise ValueError(f"two workflows have the same kind, among {sorted(by_kind)}")
    of_schedules = {each.name: each for each in schedules}
    if len(of_schedules) < len(schedules):
        raise ValueError(f"two schedules have the same name, among {sorted(of_schedules)}")
    return Registry(by_kind, tuple(of_schedules.values()))


def collect(package: ModuleType) -> Registry:
    """Every workflow and schedule in the package and its folders, so that none can be forgotten."""
    modules = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    names = [each.name for each in modules]
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    # A module that starts another's workflow has it too.
    workflows = {id(each): each for each in values if isinstance(each, Workflow)}
    schedules = {id(each): each for each in values if isinstance(each, Schedule)}
    return registry_of(*workflows.values(), schedules=schedules.values())
