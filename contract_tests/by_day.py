"""Which tests `make test` runs of those that come once for each kind of database, engine or so."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest

from contract_tests.databases import DIALECTS
from contract_tests.order import room_of

# What these rooms and files show does not depend on the database, or in hundreds of cases alike.
# That both are alike is shown in storage/, and here by what is marked `every_database`. By day all
# other tests of a file run on one of them, which they share; at night on both. On PostgreSQL they
# take 1.6 times as long, so that by day one file in three is on it.
DIALECTS_BY_DAY: Final[tuple[str, ...]] = ("postgresql", "sqlite", "sqlite")
OF_DATABASES: Final = frozenset({"api", "boundary", "workflows"})
# These ask the same of each engine, through the same code but for a client or a driver, which
# engines/test_contract.py holds to its promises by day: here each test has one engine by day.
OF_ENGINES: Final = frozenset(
    {
        "end_to_end/test_command_line",
        "engines/test_console",
        "engines/test_examination",
        "engines/test_leaked_credentials",
    }
)
ENGINES: Final = ("duckdb", "mariadb", "meilisearch", "postgres", "redis", "valkey")
# Half of the operations are asked rightly by day and the others wrongly.
OF_REQUESTS: Final = frozenset({"api/test_schemathesis"})
REQUESTS: Final = ("right", "wrong")
_OF_THE_NIGHT: Final = re.compile(r"^pytestmark = .*\bpytest\.mark\.nightly\b", re.MULTILINE)
OF_KINDS: Final = ((OF_DATABASES, DIALECTS), (OF_ENGINES, ENGINES), (OF_REQUESTS, REQUESTS))


def one_in(step: int, values: Iterable[Any], *, several: bool = False, first: int = 0) -> list[Any]:
    """For `parametrize`: each of them at night, by day the `first` and one in `step` after it.

    With `several`, each is a tuple of the values of several parameters. What is a case with marks
    of its own already keeps those.
    """
    case = type(pytest.param())
    return [
        each
        if place % step == first or isinstance(each, case)
        else pytest.param(*(each if several else (each,)), marks=pytest.mark.nightly)
        for place, each in enumerate(values)
    ]


def is_left_to_the_night(path: Path) -> bool:
    """Whether a file marks all its tests as nightly: by day it is not even imported."""
    return path.suffix == ".py" and _OF_THE_NIGHT.search(path.read_text()) is not None


def take_turns(items: Iterable[pytest.Item]) -> None:
    """Leave to the night all but one of the tests that differ in such a kind alone."""
    cases: dict[tuple[str, str], dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        room = room_of(item.path)
        of = {room, f"{room}/{item.path.stem}"}
        for files, kinds in OF_KINDS:
            kind = _kind(item, kinds)
            if kind and not files.isdisjoint(of) and not _is_nightly(item):
                case = "-".join(part for part in item.nodeid.split(kind) if part)
                alike = item.nodeid.partition("::")[0] if kinds is DIALECTS else case
                cases[case, alike][kind] = item
    for (_, alike), of_kinds in cases.items():
        in_turn = [each for each in DIALECTS_BY_DAY if each in of_kinds] or sorted(of_kinds)
        kept = in_turn[crc32(alike.encode()) % len(in_turn)]
        for kind, item in of_kinds.items():
            if kind != kept and item.get_closest_marker("every_database") is None:
                item.add_marker(pytest.mark.nightly)


def _is_nightly(item: pytest.Item) -> bool:
    return item.get_closest_marker("nightly") is not None


def _kind(item: pytest.Item, kinds: Collection[str]) -> str | None:
    call = getattr(item, "callspec", None)
    given = call.params.values() if call else ()
    found = [each for each in given if isinstance(each, str) and each in kinds]
    return str(found[0]) if len(found) == 1 else None
