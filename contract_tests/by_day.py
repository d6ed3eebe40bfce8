"""Which tests `make test` runs of those that come once for each kind of database."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final
from zlib import crc32

import pytest

from contract_tests.databases import DIALECTS

# What these rooms and files show does not depend on the database, or in hundreds of cases alike.
# That both are alike is shown in storage/, in the rest of boundary/ and workflows/, and here by
# what is marked `every_database`. By day each other test runs on one of them, half of the tests on
# either; at night on both.
IN_TURNS: Final = frozenset(
    {
        "api",
        "boundary/test_authorize",
        "boundary/test_killed_process",
        "workflows/test_access",
        "workflows/test_dead_workers",
        "workflows/test_registries",
        "workflows/test_three_ways",
    }
)


def take_turns(items: Iterable[pytest.Item]) -> None:
    """Leave one of two tests that differ in the database alone to the night."""
    cases: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        dialect = _dialect(item)
        room = item.path.parent.name
        if dialect and not IN_TURNS.isdisjoint({room, f"{room}/{item.path.stem}"}):
            case = "-".join(part for part in item.nodeid.split(dialect) if part)
            cases[case][dialect] = item
    for case, of_dialects in cases.items():
        if of_dialects.keys() != set(DIALECTS):
            continue
        left_out = DIALECTS[crc32(case.encode()) % len(DIALECTS)]
        if of_dialects[left_out].get_closest_marker("every_database") is None:
            of_dialects[left_out].add_marker(pytest.mark.nightly)


def _dialect(item: pytest.Item) -> str | None:
    call = getattr(item, "callspec", None)
    given = call.params.values() if call else ()
    found = [each for each in given if isinstance(each, str) and each in DIALECTS]
    return str(found[0]) if len(found) == 1 else None
