"""What is in the rows of a table, as both sides tell it: by a question that each can answer.

`CHECKSUM TABLE` depends on the version and the row format. Here each side computes a hash of each
row from its values as texts, and sums them up, in whatever order the rows lie.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from cell.migrations.mysql.facts import TABLE_TYPES
from cell.migrations.mysql.session import SourceSession, count_of, identifier, listed
from cell.migrations.report import Difference

# What is generated is made anew in the instance; of system versions, its moments as well.
COLUMNS = f"""
SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME, LOWER(c.DATA_TYPE)
FROM information_schema.COLUMNS c JOIN information_schema.TABLES t
    ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME
WHERE t.TABLE_TYPE IN ({listed(TABLE_TYPES)}) AND c.TABLE_SCHEMA IN ({{databases}})
    AND c.EXTRA NOT LIKE '%VIRTUAL%' AND c.EXTRA NOT LIKE '%STORED%'
    AND c.EXTRA NOT LIKE '%PERSISTENT%'
ORDER BY c.TABLE_SCHEMA, c.TABLE_NAME, c.ORDINAL_POSITION
"""  # noqa: S608 - our own words
# Short texts without a comma. All else may be long, or in another character set.
SHORT = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year"})
NO_TABLE = "no such table"


@dataclass(frozen=True)
class TableDigest:
    """`columns`: the names and types of those that are compared."""

    database: str
    name: str
    columns: tuple[tuple[str, str], ...]
    count: int
    summed: str

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Self:
        columns = tuple((str(name), str(kind)) for name, kind in document.pop("columns"))
        return cls(columns=columns, **document)

    @property
    def shown(self) -> str:
        return f"{self.database}.{self.name}"


def question(database: str, name: str, columns: Iterable[tuple[str, str]]) -> str:
    """With an answer of one row: how many rows there are, and the sum of their hashes."""
    values = ", ".join(_value(*each) for each in columns) or "''"
    # 60 bits, of which a sum of any number of rows is exact.
    hashed = f"CAST(CONV(LEFT(MD5(CONCAT_WS(',', {values})), 15), 16, 10) AS UNSIGNED)"
    place = f"{identifier(database)}.{identifier(name)}"
    return f"SELECT COUNT(*), COALESCE(SUM({hashed}), 0) FROM {place}"  # noqa: S608 - quoted


def _value(name: str, kind: str) -> str:
    named = identifier(name)
    if kind == "bit":
        named = f"{named} + 0"
    elif kind not in SHORT:
        named = f"MD5({named})"
    return f"COALESCE({named}, '-')"


async def of_source(
    session: SourceSession, chosen: tuple[str, ...], within_s: float
) -> list[TableDigest]:
    """In the transaction of the session; `within_s` is what one table may take."""
    found = []
    for (database, name), columns in (await _columns(session, chosen)).items():
        asked = question(database, name, columns)
        count, summed = await session.row(asked, 2, within_s)
        found.append(TableDigest(database, name, tuple(columns), count_of(count), str(summed)))
    return found


async def _columns(
    session: SourceSession, chosen: tuple[str, ...]
) -> dict[tuple[str, str], list[tuple[str, str]]]:
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for each in chosen:
        rows = await session.rows(COLUMNS.format(databases=listed([each])), 4)
        for database, table, column, kind in rows:
            # Names of databases that differ in case only are asked for together.
            if database == each:
                key = (str(database), str(table))
                found.setdefault(key, []).append((str(column), str(kind)))
    return found


def differences(
    expected: Iterable[TableDigest], found: Mapping[str, Sequence[object] | None]
) -> list[Difference]:
    """`found` is by the names that are shown."""
    differing = []
    for each in expected:
        answer = found[each.shown]
        if answer is None:
            differing.append(Difference(each.shown, f"{each.count} rows", NO_TABLE))
            continue
        count, summed = int(str(answer[0])), str(answer[1])
        if count != each.count:
            differing.append(Difference(each.shown, f"{each.count} rows", f"{count} rows"))
        elif summed != each.summed:
            told = (f"{count} rows, digest {sum_}" for sum_ in (each.summed, summed))
            differing.append(Difference(each.shown, *told))
    return differing
