"""CSV and Parquet files into DuckDB: a file that the engine reads as one that was sent."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cell.engines.contents import Contents
from cell.engines.duckdb import DuckDB
from cell.instances.verification import ScratchInstance
from cell.migrations.postgres.quoting import identifier, qualified
from cell.migrations.table_files.on_scratch import ScratchTables, Sent
from cell.migrations.table_files.tables import FileTable, TableRules
from cell.runtime.confinement import Mount
from cell.runtime.engine_folders import INSIDE
from instance_services.table_files import canonical

RULES: Final = TableRules(
    engine="DuckDB",
    schema="main",
    name_bytes_max=255,
    columns_max=2000,
    folds_case=True,
    taken_schemas=re.compile("(?i:information_schema|pg_catalog|system|temp)$"),
    native=True,
)


@dataclass
class DuckDBTableFiles(ScratchTables):
    driver: DuckDB

    @property
    def rules(self) -> TableRules:
        return RULES

    async def _made(self, folder: Path) -> Contents:
        sent: list[Sent] = []

        async def put(scratch: ScratchInstance) -> None:
            """By the program that reads the files, which writes to the scratch engine's folder."""
            data = Mount(scratch.site.data.outside, INSIDE / "data", writable=True)
            words = ("fill", "--database", str(self.driver.database(scratch.site)))
            async with self.reader(scratch).started(*words, mounts=[data]) as telling:
                for table in self.tables:
                    said = await telling.line()
                    sent.append((int(said["rows"]), str(said["digest"])))
                    self.done(table)
                await telling.until_ended()

        async def look(scratch: ScratchInstance) -> Contents:
            for table, own in zip(self.tables, sent, strict=True):
                query = _question(table)
                ((count, digest),) = await self.driver.rows(scratch.site, scratch.login, query)
                self.compare(table, own, (int(count), str(digest)))
            return await self.driver.examine(scratch.site, scratch.login)

        return await self.verifier.begun_with(self.work.instance, put, look, folder)


def _question(table: FileTable) -> str:
    values = []
    for each in table.columns:
        named = identifier(each.name)
        is_parquet = table.form == "parquet"
        values.append((canonical.native_value(named, each) if is_parquet else named, each.kind))
    summed = f"coalesce(sum({canonical.in_duckdb(values)}), 0)::VARCHAR"
    return f"SELECT count(*), {summed} FROM {qualified(table.schema, table.name)}"  # noqa: S608 - quoted
