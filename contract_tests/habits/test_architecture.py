"""The pictures of docs/architecture.md are those of the code: its rooms, and an instance's life."""

import inspect
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

from contract_tests.habits.test_imports import MAY_IMPORT
from contract_tests.habits.test_sizes import FILES, ROOT
from storage.columns import EPOCH
from storage.errors import StateConflict
from storage.instances.instances import DESIRED, STATUSES, Instance

PAGE = (ROOT / "docs" / "architecture.md").read_text()
Transition = tuple[str, str, str]
# What an instance may be that has a status, where that decides what is allowed.
RECORDS = [
    {"desired_status": desired, "paused_by": paused_by, "ready_at": ready_at}
    for desired, paused_by, ready_at in product(DESIRED, (None, "user", "idle"), (None, EPOCH))
]
ARGUMENTS = {"datetime": EPOCH, "datetime | None": None, "bool": True, "str": "user"}


def picture(kind: str, page: str = PAGE) -> str:
    pictures = re.findall(r"^```mermaid\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    found = [each for each in pictures if each.startswith(kind)]
    assert len(found) == 1, f"one {kind} is compared with the code"
    return str(found[0])


def drawn_rooms() -> dict[str, set[str]]:
    """Room to those it has an arrow to, in the picture of rooms."""
    rooms: dict[str, set[str]] = {}
    for line in picture("flowchart TD").splitlines()[1:]:
        room, _, imports = line.partition("-->")
        rooms[room.strip()] = {each.strip() for each in imports.split("&") if each.strip()}
    return rooms


def test_every_room_is_in_the_picture_and_in_the_table() -> None:
    """A room without arrows has a line of its own, or an arrow that leads to it."""
    rooms = {path.relative_to(ROOT).parts[0] for path in FILES}
    drawn = drawn_rooms()
    assert drawn.keys() | {room for imports in drawn.values() for room in imports} == rooms
    assert set(re.findall(r"^\| `(\w+)` \| ", PAGE, re.MULTILINE)) == rooms


def test_an_arrow_means_may_import() -> None:
    allowed = {room: rooms - {room} for room, rooms in MAY_IMPORT.items() if rooms}
    assert {room: imports for room, imports in drawn_rooms().items() if imports} == allowed


def drawn_life(page: str = PAGE) -> tuple[set[str], set[Transition]]:
    """The statuses and the transitions drawn; an arrow from a frame is one from each within."""
    members: dict[str, set[str]] = {}
    frames: list[str] = []
    arrows: list[Transition] = []
    for line in map(str.strip, picture("stateDiagram", page).splitlines()[1:]):
        if opened := re.fullmatch(r"state (\w+) \{", line):
            frames.append(opened[1])
            members[opened[1]] = set()
        elif line == "}":
            inner = members[frames.pop()]
            members.update({outer: members[outer] | inner for outer in frames})
        elif arrow := re.fullmatch(r"(\w+) --> (\w+): (\w+)", line):
            arrows.append((arrow[1], arrow[2], arrow[3]))
            for frame in frames:
                members[frame] |= {arrow[1], arrow[2]}
        else:
            assert re.fullmatch(r"\[\*\] --> \w+|\w+ --> \[\*\]", line), line
    members = {frame: inner - members.keys() for frame, inner in members.items()}
    transitions = {
        (status, to, verb) for start, to, verb in arrows for status in members.get(start, {start})
    }
    return {end for status, to, _ in transitions for end in (status, to)}, transitions


def transitions() -> Iterator[Transition]:
    """Every change of status that a method of a record makes, from any state it may be in."""
    methods = inspect.getmembers(Instance, inspect.isfunction)
    verbs = [(name, method) for name, method in methods if method.__module__ == Instance.__module__]
    for (verb, method), status, record in product(verbs, STATUSES, RECORDS):
        if verb.startswith("_"):
            continue
        parameters = list(inspect.signature(method).parameters.values())[1:]
        # A change that waits for the cell is the one that has a status.
        arguments: dict[str, Any] = {one.name: _argument(one) for one in parameters}
        instance = Instance(status=status, **record)
        try:
            method(instance, **arguments)
        except StateConflict:
            continue
        if instance.status != status:
            yield status, instance.status, verb


def _argument(parameter: inspect.Parameter) -> Any:
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return ARGUMENTS[text.removeprefix("datetime.")]


def test_the_life_of_an_instance_is_drawn_as_it_is() -> None:
    statuses, drawn = drawn_life()
    assert statuses == set(STATUSES)
    assert drawn == set(transitions())


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w*(?:\.py|\.yaml)?)`", PAGE))
    # The table of rooms names folders within the room of its row.
    rooms = ["", *(f"{room}/" for room in MAY_IMPORT), "contract_tests/"]
    assert len(named) > len(MAY_IMPORT)
    assert not [one for one in named if not any((ROOT / room / one).exists() for room in rooms)]
