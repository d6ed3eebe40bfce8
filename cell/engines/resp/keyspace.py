"""How many keys a server has, by database, as it and others of its kind say."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cell.engines.contents import Contents

DIGITS_MAX: Final = 18
_DATABASE: Final = re.compile(r"db(\d{1,6})", re.ASCII)


@dataclass(frozen=True)
class KeyCounts:
    """Of one database; of its `keys`, so many expire."""

    keys: int
    expiring: int

    def __str__(self) -> str:
        return f"{self.keys} keys, {self.expiring} of which expire"


def counts(said: Mapping[str, str]) -> dict[int, KeyCounts]:
    """Of an answer to INFO, by the number of the database; of those that have any keys."""
    found: dict[int, KeyCounts] = {}
    for name, told in said.items():
        if (database := _DATABASE.fullmatch(name)) is None:
            continue
        parts = dict(each.split("=", 1) for each in told.split(",") if "=" in each)
        keys, expiring = (parts.get(each, "") for each in ("keys", "expires"))
        if all(each.isdigit() and len(each) <= DIGITS_MAX for each in (keys, expiring)):
            found[int(database[1])] = KeyCounts(int(keys), int(expiring))
    return found


def contents(said: Mapping[str, str]) -> Contents:
    by_database = sorted(counts(said).items())
    every = [(f"db{number}", f"keys={each.keys}") for number, each in by_database]
    lasting = [(number, each.keys - each.expiring) for number, each in by_database]
    return Contents.of(
        every,
        rows=sum(each.keys for _, each in by_database),
        lasting=[each for each in lasting if each[1]],
    )
