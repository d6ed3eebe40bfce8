"""Measures: figures of the whole installation, read from the database when they are scraped.

A module of any folder of `control` declares its own as a constant, and `collect` finds it:

    BACKLOG: Final = Measure(
        "menagerie_webhook_backlog", "Deliveries that are due.", ("state",), read_backlog
    )

What a process counts itself is an instrument (`specserver.instruments`).
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TypeAlias

from sqlalchemy.orm import Session

Figures: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""The values of the labels, of each figure."""


@dataclass(frozen=True)
class Measure:
    """A gauge; `read` gets a session that sees every organization. Labels are of few values."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Session], Figures]


def collect(package: ModuleType) -> tuple[Measure, ...]:
    """Every measure in the package and its folders. Raises ValueError for two of one name."""
    modules = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    names = sorted(each.name for each in modules)
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    found = {id(each): each for each in values if isinstance(each, Measure)}
    by_name = {each.name: each for each in found.values()}
    if len(by_name) < len(found):
        raise ValueError(f"two measures have the same name, among {sorted(by_name)}")
    return tuple(by_name[name] for name in sorted(by_name))
