"""The skeleton of an operation's own record: table, migration, view, and its conflicts."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from tools import skeleton_texts

# Each dictionary of storage/conflicts.py ends before what is said of it.
_SENTENCES_END: Final = '}\n"""By columns,'
# Of the names of migrations.
_MOMENT: Final = "%Y%m%d%H%M"
_CONSTRAINTS_END: Final = '}\n"""By constraint,'


class Refused(SystemExit):
    """The skeleton cannot be written; nothing was."""


class Operation(Protocol):
    """What is known of the operation that has the record."""

    root: Path
    noun: str
    method: str
    path: str
    records: list[str]
    area: Path

    def import_of(self, record: str) -> str: ...
    def module(self, room: str) -> Path: ...


class RecordSkeleton:
    """A record named like a class, in the table of the operation's noun."""

    def __init__(self, operation: Operation, name: str) -> None:
        self.operation, self.name = operation, name
        self.root, self.table = operation.root, operation.noun
        self.parent = operation.records[-1] if operation.records else None
        self.view_name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()

    def write(self) -> list[Path]:
        """Raises Refused where the record or its view is there already."""
        place, views = self.operation.module("storage"), self._views()
        if place.exists():
            raise Refused(f"{place.name} is there already: add the record to it")
        there = views.read_text() if views.exists() else skeleton_texts.VIEWS
        if f"\ndef {self.view_name}(" in there:
            raise Refused(f"{views.name} has a view {self.view_name} already: rename the record")
        place.write_text(self._record())
        return [place, self._migrate(), self._list(), self._show(views, there), self._explain()]

    @property
    def _is_one_of_each(self) -> bool:
        """What a PUT replaces is one of the record that the path names, if it has no id there."""
        one = self.operation
        return one.method == "PUT" and bool(one.records) and not one.path.endswith("}")

    @property
    def _key(self) -> str:
        """The column of whose it is: of one of each the key, else unique together with `todo`."""
        return f"{self.parent or 'org'}_id"

    def _record(self) -> str:
        if not self._is_one_of_each:
            within = self._within(skeleton_texts.WITHIN)
            return skeleton_texts.RECORD.format(
                name=self.name, table=self.table, within=within, key=self._key
            )
        kind = self.operation.records[-1].title().replace("_", "")
        return skeleton_texts.ONE_OF_EACH.format(
            name=self.name,
            table=self.table,
            record=self.parent,
            kind=kind,
            imported=self.operation.import_of(kind),
        )

    def _within(self, text: str) -> str:
        """What is said of the record that the path leads to, where it names one."""
        return text.format(record=self.parent, table=self.table) if self.parent else ""

    def _migrate(self) -> Path:
        versions = self.root / "storage" / "migrations" / "versions"
        before = max(one.name.partition("_")[0] for one in versions.glob("[0-9]*.py"))
        moment = _later_than(before)
        migration = versions / f"{moment}_{self.table}.py"
        unique = skeleton_texts.UNIQUE_KEY.format(table=self.table, key=self._key)
        migration.write_text(
            skeleton_texts.MIGRATION.format(
                name=self.name,
                table=self.table,
                revision=moment,
                before=before,
                own="" if self._is_one_of_each else skeleton_texts.ID_COLUMN,
                key=self._key if self._is_one_of_each else "id",
                within=self._within(skeleton_texts.WITHIN_COLUMN),
                keys=self._within(skeleton_texts.WITHIN_KEY),
                unique="" if self._is_one_of_each else unique,
            )
        )
        return migration

    @property
    def _import(self) -> str:
        return f"from storage.{self.operation.area.stem}.{self.table} import {self.name}\n"

    def _list(self) -> Path:
        """Among all records, which the database is made of."""
        records = self.root / "storage" / "records.py"
        entry = f'{self._import}\n__all__ = [\n    "{self.name}",\n'
        records.write_text(records.read_text().replace("\n__all__ = [\n", entry))
        return records

    def _views(self) -> Path:
        return self.operation.module("handlers").with_name("views.py")

    def _show(self, views: Path, text: str) -> Path:
        """Beside the handler, after the other views of its area."""
        head, found, rest = text.partition("\nJson = ")
        view = skeleton_texts.VIEW.format(view=self.view_name, name=self.name)
        views.write_text(f"{head.rstrip()}\n{self._import}{found}{rest.rstrip()}\n{view}")
        return views

    def _explain(self) -> Path:
        """What a caller reads where the database refuses a second one."""
        place = self.root / "storage" / "conflicts.py"
        columns = f"{self.table}.{self._key}"
        constraint = f"pk_{self.table}"
        if not self._is_one_of_each:
            columns = f"{columns}, {self.table}.todo"
            constraint = f"uq_{self.table}_{self._key}_todo"
        owner = (self.parent or "organization").replace("_", " ")
        known = f"TODO: the {owner} already has this {self.view_name.replace('_', ' ')}"
        text = place.read_text()
        for end, key, value in (
            (_SENTENCES_END, columns, known),
            (_CONSTRAINTS_END, constraint, columns),
        ):
            text = text.replace(end, f'    "{key}": "{value}",\n{end}', 1)
        place.write_text(text)
        return place


def _later_than(revision: str) -> str:
    """Now, in minutes; or the next minute, where a migration of this one is there already."""
    now = f"{datetime.now(UTC):{_MOMENT}}"
    next_minute = datetime.strptime(revision, _MOMENT).replace(tzinfo=UTC) + timedelta(minutes=1)
    return max(now, f"{next_minute:{_MOMENT}}")
