"""CSV and Parquet files into MariaDB: statements, run on a scratch engine as a dump is."""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from cell.engines.contents import Contents
from cell.engines.driver import EngineError
from cell.engines.mysql import examination
from cell.engines.mysql.driver import MariaDB
from cell.instances.verification import ScratchInstance
from cell.migrations.mysql.session import identifier
from cell.migrations.mysql_dumps import run_sql
from cell.migrations.report import PreflightFinding
from cell.migrations.table_files.on_scratch import ScratchTables, Sent
from cell.migrations.table_files.tables import FileTable, TableRules
from cell.runtime.own_threads import in_own_thread
from instance_services.table_files import canonical, kinds
from instance_services.table_files.kinds import FoundColumn

RULES: Final = TableRules(
    engine="MariaDB",
    schema="app",
    name_bytes_max=64,
    columns_max=1017,
    folds_case=True,
    has_infinity=False,
    taken_schemas=re.compile("(?i:mysql|sys|information_schema|performance_schema)$"),
)
TYPES: Final = {
    kinds.BOOLEAN: "BOOLEAN",
    kinds.BIGINT: "BIGINT",
    kinds.REAL: "DOUBLE",
    kinds.DOUBLE: "DOUBLE",
    kinds.DATE: "DATE",
    kinds.TIMESTAMP: "DATETIME(6)",
    kinds.TIMESTAMPTZ: "DATETIME(6)",
    kinds.TIME: "TIME(6)",
    # Its own type refuses some.
    kinds.UUID: "CHAR(36) CHARACTER SET ascii",
    kinds.JSON: "JSON",
    kinds.BLOB: "LONGBLOB",
}
# Of a row, which all short texts are part of.
SHORT_TEXT_BYTES, SHORT_TEXTS_MAX = 255, 30
DECIMAL_DIGITS = (18, 38, 65)
BEGIN: Final = (
    "SET NAMES utf8mb4; SET time_zone = '+00:00'; SET autocommit = 0;\n"
    "SET sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE';\n"
)


@dataclass
class MariaDBTableFiles(ScratchTables):
    driver: MariaDB

    @property
    def rules(self) -> TableRules:
        return RULES

    async def _holds(self) -> Contents:
        instance = self.work.instance
        return await self.driver.owned(instance.site, self.restores.login(instance))

    def _of_types(self, tables: tuple[FileTable, ...]) -> Iterator[PreflightFinding]:
        for table in tables:
            zoned = [each.name for each in table.columns if each.kind == kinds.TIMESTAMPTZ]
            if zoned:
                message = f"moments with a zone become DATETIME in UTC: {', '.join(zoned)}"
                yield PreflightFinding("info", "time_zone", message, None, table.shown)

    def _notes(self) -> list[str]:
        measured = {kinds.REAL, kinds.DOUBLE}
        if any(each.kind in measured for table in self.tables for each in table.columns):
            return ["of floating-point columns, only was compared which rows have a value"]
        return []

    async def _made(self, folder: Path) -> Contents:
        await self.verifier.filled(self.work.instance, self._fill, folder)
        assert self._found is not None
        return self._found

    async def _fill(self, scratch: ScratchInstance) -> None:
        sent: list[Sent] = []
        await run_sql(self.driver, self.host, scratch, self._statements(scratch, sent))
        questions = {each.file: _question(each) for each in self.tables}
        asking = partial(examination.answers, scratch.site.socket, scratch.login, questions)
        answers = await in_own_thread(asking)
        for table, own in zip(self.tables, sent, strict=True):
            if (found := answers[table.file]) is None:
                raise EngineError(f"the table {table.shown} cannot be read")
            self.compare(table, own, (int(found[0]), str(found[1])))
        self._found = await self.driver.owned(scratch.site, scratch.login)

    async def _statements(self, scratch: ScratchInstance, sent: list[Sent]) -> AsyncIterator[bytes]:
        yield BEGIN.encode()
        async with self.reader(scratch).started("insert") as telling:
            for table in self.tables:
                yield _creating(table).encode()
                async for block in telling.blocks():
                    yield block
                said = await telling.line()
                yield b"COMMIT;\n"
                sent.append((int(said["rows"]), str(said["digest"])))
                self.done(table)


def _creating(table: FileTable) -> str:
    columns = ", ".join(f"{identifier(each.name)} {_type(each, table)}" for each in table.columns)
    return (
        f"CREATE DATABASE IF NOT EXISTS {identifier(table.schema)};\n"
        f"CREATE TABLE {_place(table)} ({columns}) DEFAULT CHARSET utf8mb4;\n"
    )


def _place(table: FileTable) -> str:
    return f"{identifier(table.schema)}.{identifier(table.name)}"


def _type(column: FoundColumn, table: FileTable) -> str:
    if column.kind == kinds.DECIMAL:
        digits = next(each for each in DECIMAL_DIGITS if each >= (column.digits or 0))
        return f"DECIMAL({digits}, {column.scale or 0})"
    if column.kind == kinds.TEXT:
        texts = sum(each.kind == kinds.TEXT for each in table.columns)
        is_short = (column.bytes_max or 0) <= SHORT_TEXT_BYTES and texts <= SHORT_TEXTS_MAX
        return f"VARCHAR({SHORT_TEXT_BYTES})" if is_short else "LONGTEXT"
    return TYPES[column.kind]


def _question(table: FileTable) -> str:
    values = [(identifier(each.name), each.kind) for each in table.columns]
    summed = f"COALESCE(SUM({canonical.in_mariadb(values)}), 0)"
    return f"SELECT COUNT(*), {summed} FROM {_place(table)}"  # noqa: S608 - quoted
