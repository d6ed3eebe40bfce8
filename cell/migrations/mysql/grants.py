"""What the user of a source may do there, by what the source says of its own grants."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

NAME = r"(?:\*|`(?:[^`]|``)*`)"
GRANT = re.compile(
    rf"GRANT (?P<rights>.+?) ON (?:TABLE )?(?P<database>{NAME})\.(?P<table>{NAME}) TO ", re.DOTALL
)
ALL = "ALL PRIVILEGES"
# Of a pattern: what stands for itself, and what stands for anything.
PART = re.compile(r"\\(.)|(%)|(_)|([^\\%_]+|\\)", re.DOTALL)


@dataclass(frozen=True)
class Grant:
    """None stands for all databases, or all tables of them."""

    rights: frozenset[str]
    database: re.Pattern[str] | None
    table: str | None


class Grants:
    def __init__(self, lines: Iterable[str]) -> None:
        self._grants = [each for line in lines if (each := _grant(line)) is not None]

    def has(self, right: str, database: str, table: str | None = None) -> bool:
        """On all of a database, or on a table in it."""
        for each in self._grants:
            if right not in each.rights and ALL not in each.rights:
                continue
            if each.database is not None and not each.database.fullmatch(database):
                continue
            if each.table is None or each.table == table:
                return True
        return False

    def has_everywhere(self, right: str) -> bool:
        """As those that are not of any database are given."""
        return any(
            each.database is None and {right, ALL} & each.rights
            for each in self._grants
            if each.table is None
        )


def _grant(line: str) -> Grant | None:
    found = GRANT.match(line)
    if found is None:
        return None
    # Those for single columns say them in parentheses, and are not for all of a table.
    rights = frozenset(each.strip().upper() for each in found["rights"].split(","))
    database, table = _name(found["database"]), _name(found["table"])
    return Grant(rights, None if database is None else _pattern(database), table)


def _name(written: str) -> str | None:
    return None if written == "*" else written[1:-1].replace("``", "`")


def _pattern(name: str) -> re.Pattern[str]:
    def part(found: re.Match[str]) -> str:
        escaped, everything, one, text = found.groups()
        if everything:
            return ".*"
        return "." if one else re.escape(escaped or text)

    return re.compile(PART.sub(part, name), re.DOTALL)
