"""Owns the part of a large value that is looked at to tell what is wrong with it.

The processor makes every violation before it gives the first, at several KB and 60 µs each: of a
body of a megabyte, gigabytes and half a minute. So a large value is cut before it is asked.
"""

from collections.abc import Iterable
from typing import Any

# So many values are looked at: items and members, at all depths together.
VALUES = 300
# The name of each member on the way is copied for every violation below it.
NAME_LENGTH = 256

# What breaks these in the excerpt breaks them in the whole.
_HOLD = frozenset(
    {"type", "maxItems", "maxProperties", "uniqueItems"}
    | {"additionalProperties", "unevaluatedProperties", "propertyNames"}
)
# These too, where nothing was cut from the very object or array.
_HOLD_WHERE_WHOLE = frozenset({"required", "dependentRequired", "minItems", "minProperties"})

Place = tuple[str | int, ...]


class Excerpt:
    """The first values of a value, and the places from which something was cut."""

    def __init__(self, whole: Any) -> None:
        self._left = VALUES
        self._cut: set[Place] = set()
        # These, and the places they are below.
        self._around: set[Place] = set()
        self.value = self._of(whole, ())

    @property
    def is_whole(self) -> bool:
        return not self._cut

    def holds(self, keyword: str, place: Iterable[str | int]) -> bool:
        """Whether a violation of the excerpt is one of the whole."""
        at = tuple(place)
        if keyword in _HOLD:
            return True
        return at not in (self._cut if keyword in _HOLD_WHERE_WHOLE else self._around)

    def _of(self, value: Any, place: Place) -> Any:
        if isinstance(value, list):
            return self._array(value, place)
        return self._object(value, place) if isinstance(value, dict) else value

    def _array(self, value: list[Any], place: Place) -> list[Any]:
        items: list[Any] = []
        for index, item in enumerate(value):
            if not self._takes_one():
                self._was_cut(place)
                break
            items.append(self._of(item, (*place, index)))
        return items

    def _object(self, value: dict[str, Any], place: Place) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for name, member in value.items():
            if len(name) > NAME_LENGTH or not self._takes_one():
                self._was_cut(place)
                if self._left <= 0:
                    break
            else:
                members[name] = member
        # The names on one level come before what is below any of them.
        return {name: self._of(member, (*place, name)) for name, member in members.items()}

    def _takes_one(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def _was_cut(self, place: Place) -> None:
        self._cut.add(place)
        self._around.update(place[:end] for end in range(len(place) + 1))
