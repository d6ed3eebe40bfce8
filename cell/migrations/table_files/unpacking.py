"""What was sent, unpacked beside it and looked at: the tables that it has, or why it has none."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from cell.instances.hosted import HostedInstance
from cell.layout import write_atomically
from cell.migrations import spool
from cell.migrations.errors import MigrationError
from cell.migrations.report import ORDER, PreflightFinding, sizes
from cell.migrations.table_files.reader import CUT_OFF, FileReader, Telling
from cell.migrations.table_files.tables import (
    FileTable,
    TableRules,
    described,
    finding,
    oddities,
    of_names,
)
from cell.runtime import engine_files
from cell.runtime.confined_tools import Toolbox
from cell.runtime.own_threads import in_own_thread
from instance_services.table_files.kinds import MEMBERS_MAX

LISTED = "tables.json"
FINDINGS_MAX = 200
COLUMNS_IN_ALL_MAX = 50_000
"""Of all tables together: what is known of each is kept in the cell's memory."""


@dataclass(frozen=True)
class FileTables:
    """What was found; of tables that cannot be read only the findings tell."""

    tables: tuple[FileTable, ...]
    findings: tuple[PreflightFinding, ...]

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.tables)


class Unpacking:
    """Of one migration. `name` is the table of a file that is no archive."""

    def __init__(
        self, instance: HostedInstance, toolbox: Toolbox, rules: TableRules, name: str | None
    ) -> None:
        self._instance = instance
        self._toolbox = toolbox
        self._rules = rules
        self._name = name
        self.folder = spool.folder(instance)
        self.reader = FileReader(toolbox, self.folder)

    async def found(self) -> FileTables:
        """All files are read, once. Raises MigrationError where what reads them fails."""
        await in_own_thread(self._clean)
        tables, findings = await self._unpacked()
        if tables and not _blocking(findings):
            tables, more = await self._looked_at(tables)
            findings += more
            await in_own_thread(self._save, tables)
        if not _blocking(findings):
            findings += await in_own_thread(_of_tables, tables, self._rules)
        # What is cut off must not be what refuses the files.
        findings.sort(key=lambda each: ORDER[each.severity])
        found = FileTables(tuple(tables), tuple(findings[:FINDINGS_MAX]))
        return FileTables(found.tables, (*found.findings, *sizes(found.size_bytes, self._instance)))

    def _save(self, tables: list[FileTable]) -> None:
        """For what reads them."""
        content = orjson.dumps([each.document() for each in tables])
        owner = self._toolbox.host.owner(self._toolbox.site)
        gid = -1 if owner is None else owner
        write_atomically(self.folder / LISTED, content, mode=0o640, gid=gid)

    def _clean(self) -> None:
        for path in self.folder.iterdir():
            if path.name != spool.FILE:
                engine_files.remove(path)

    async def _unpacked(self) -> tuple[list[FileTable], list[PreflightFinding]]:
        words = ["--name", self._name] if self._name is not None else []
        tables: list[FileTable] = []
        left_bytes, is_cut_off = self._instance.record.spec.size.storage_bytes, False
        async with self.reader.started("unpack", *words) as telling:
            while True:
                said = await telling.line()
                if "findings" in said:
                    findings = [finding(each) for each in said["findings"]]
                    if is_cut_off and not _blocking(findings):
                        raise MigrationError(CUT_OFF)
                    return tables, findings
                if len(tables) == MEMBERS_MAX:
                    raise MigrationError(f"there are more than {MEMBERS_MAX} tables")
                path = self.folder / f"table-{len(tables)}"
                size_bytes = await self._received(telling, path, left_bytes)
                left_bytes -= size_bytes
                made = self._table(path, size_bytes, said, await telling.line())
                if made is not None:
                    tables.append(made)
                else:
                    is_cut_off = True

    async def _received(self, telling: Telling, path: Path, left_bytes: int) -> int:
        """How many bytes the file has."""
        size_bytes = 0
        with path.open("wb") as file:
            async for block in telling.blocks():
                size_bytes += len(block)
                if size_bytes > left_bytes:
                    raise MigrationError(
                        "what was sent has more bytes unpacked than the instance has storage; "
                        "choose more storage or a larger size (resize)"
                    )
                spool.check_disk(self._instance, len(block))
                await in_own_thread(file.write, block)
        return size_bytes

    def _table(
        self, path: Path, size_bytes: int, began: dict[str, Any], ended: dict[str, Any]
    ) -> FileTable | None:
        if not ended.get("complete"):
            return None
        schema, _, name = str(began["table"]).rpartition("/")
        encoding = ended.get("encoding")
        return FileTable(
            file=path.name,
            path=str(began["path"]),
            form="csv" if began["form"] == "csv" else "parquet",
            encoding=None if encoding is None else str(encoding),
            size_bytes=size_bytes,
            schema=schema or self._rules.schema,
            name=name,
            lines=int(ended.get("lines") or 0),
            blank=int(ended.get("blank") or 0),
        )

    async def _looked_at(
        self, tables: list[FileTable]
    ) -> tuple[list[FileTable], list[PreflightFinding]]:
        await in_own_thread(self._save, tables)
        found: list[FileTable] = []
        findings: list[PreflightFinding] = []
        columns = 0
        async with self.reader.started(
            "inspect", "--columns-max", str(self._rules.columns_max)
        ) as telling:
            for table in tables:
                said = await telling.line()
                if "error" in said:
                    remedy = "correct the file, or make it anew"
                    why = str(said["error"])
                    findings.append(
                        PreflightFinding("blocking", "not_readable", why, remedy, table.path)
                    )
                    continue
                found.append(table.looked_at(said))
                columns += len(found[-1].columns)
                if columns > COLUMNS_IN_ALL_MAX:
                    raise MigrationError(
                        f"the files have more than {COLUMNS_IN_ALL_MAX} columns together; "
                        "send fewer files at once"
                    )
                findings += oddities(found[-1], said, self._rules)
        return found, findings


def _of_tables(tables: list[FileTable], rules: TableRules) -> list[PreflightFinding]:
    return [*of_names(tables, rules), *map(described, tables)]


def _blocking(findings: list[PreflightFinding]) -> bool:
    return any(each.severity == "blocking" for each in findings)
