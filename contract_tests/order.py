"""The order in which files of tests are handed to the workers.

Rooms one after the other, so that what a room shares ends when its last file is done and is not
left to idle; in each what takes long first, and the room of small files last. Else one worker would
be busy at the end with what it began late, while the others have nothing to do.

No test needs this order. `make test ARGS='--order …'` runs them backwards or shuffled.
"""

import os
import random
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

import pytest

# Set by tools/run_tests.
CHOSEN: Final = "CONTRACT_TESTS_ORDER"
TESTS: Final = Path(__file__).resolve().parent
FIRST: Final = ("end_to_end", "engines", "cell", "isolation", "api", "gateway", "duckdb")
# In seconds of a CPU, roughly; what is not listed takes less than ten, by the number of its tests.
SECONDS: Final = {
    "end_to_end": {
        "test_fresh_machines": 25,
        "test_command_line": 18,
        "test_killed_control_plane": 15,
        "test_newcomer": 13,
        "test_dump": 10,
        "test_console": 10,
        "test_reference": 10,
    },
    "cell": {
        "test_backups": 30,
        "test_backup_faults": 15,
        "test_uploads": 15,
        "test_connections": 15,
        "test_sync": 12,
        "test_faults": 13,
        "test_queues": 9,
    },
    "engines": {
        "test_postgres_data": 18,
        "test_contract": 18,
        "test_liveness": 13,
        "test_postgres_leftovers": 13,
        "test_console": 11,
        "test_postgres_cell": 10,
        "test_postgres_lockouts": 10,
    },
    "api": {"test_guessing": 6, "test_schemathesis": 5, "test_bad_input": 5, "test_events": 5},
    "search": {"test_durability": 8, "test_oracle": 6},
    "duckdb": {"test_durability": 9, "test_recovery": 7, "test_document": 7, "test_hostile": 5},
}
# By the room, where nothing is said of the file.
_EACH: Final = {"end_to_end": 0.6, "engines": 0.5, "cell": 0.4, "isolation": 0.5}
_ANY: Final = 0.05


def in_order(items: list[pytest.Item], chosen: str | None = None) -> None:
    """Rooms, and their files, in order; the tests of a file as they stand.

    Or all of it as is `chosen`: "reverse", or "random:" with a seed. A file stays in one piece, and
    a room too, in any order: so many would be running at once otherwise.
    """
    counts = Counter(item.path for item in items)
    places = {path: _place(path, count) for path, count in counts.items()}
    items.sort(key=lambda item: places[item.path])
    chosen = chosen or os.environ.get(CHOSEN)
    if chosen == "reverse":
        items.reverse()
    elif chosen:
        _shuffle(items, random.Random(chosen.partition(":")[2]))


def _shuffle(items: list[pytest.Item], chance: random.Random) -> None:
    """Each worker makes the same of it, as they have to agree."""
    rooms = sorted({room_of(item.path) for item in items})
    files = sorted({item.path for item in items})
    chance.shuffle(items)
    chance.shuffle(rooms)
    chance.shuffle(files)
    items.sort(key=lambda item: (rooms.index(room_of(item.path)), files.index(item.path)))


@cache
def room_of(path: Path) -> str:
    """The folder right below that of all tests; a room's own folders are part of it."""
    return path.relative_to(TESTS).parts[0]


def _place(path: Path, count: int) -> tuple[int, str, float, str]:
    room = room_of(path)
    turn = FIRST.index(room) if room in FIRST else len(FIRST)
    return turn, room, -_seconds(path, count), path.name


def _seconds(path: Path, count: int) -> float:
    room = room_of(path)
    listed = SECONDS.get(room, {}).get(path.stem)
    return listed if listed is not None else min(count * _EACH.get(room, _ANY), 9.9)


def unknown(files: Iterable[Path]) -> set[str]:
    """What is listed and is no file."""
    known = {(room_of(path), path.stem) for path in files}
    named = ((room, name) for room, names in SECONDS.items() for name in names)
    return {f"{room}/{name}.py" for room, name in named if (room, name) not in known}
