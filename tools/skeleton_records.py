"""The skeleton of an operation's own record: table, migration, view, conflicts, and its fate."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from tools import skeleton_texts
from tools.skeleton_columns import UNDECIDED, Column, Refused, types

# Each dictionary of storage/conflicts.py ends before what is said of it.
_SENTENCES_END: Final = '}\n"""By columns,'
# Of the names of migrations.
_MOMENT: Final = "%Y%m%d%H%M"
_CONSTRAINTS_END: Final = '}\n"""By constraint,'
_ERASURE: Final = Path("control/workflows/instances/erasure.py")
_ERASED: Final = '        publish(db, instance, "instance.deleted.v1", erased=True'
_FATES: Final = Path("contract_tests/workflows/instances/test_fates.py")
_FATE: Final = re.compile(r'^    "(\w+)": Fate\(', re.MULTILINE)


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

    def __init__(self, operation: Operation, name: str, columns: tuple[Column, ...]) -> None:
        self.operation, self.name, self.columns = operation, name, columns
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
        written = [place, self._migrate(), self._list(), self._show(views, there)]
        if not self.is_one_of_each:
            # A PUT writes over the one that is there, so nothing refuses another.
            written.append(self._explain())
        return written + (self._decide() if self.parent == "instance" else [])

    @property
    def is_one_of_each(self) -> bool:
        """What a PUT replaces is one of the record that the path names, if it has no id there."""
        one = self.operation
        return one.method == "PUT" and bool(one.records) and not one.path.endswith("}")

    @property
    def _key(self) -> str:
        """The column of whose it is: of one of each the key, else unique with the first column."""
        return f"{self.parent or 'org'}_id"

    def _record(self) -> str:
        named = {"name": self.name, "table": self.table, "record": self.parent}
        undecided = "    # TODO: its members.\n" if self.columns == UNDECIDED else ""
        members = undecided + "".join(one.in_record for one in self.columns)
        if self.is_one_of_each:
            kind = self.operation.records[-1].title().replace("_", "")
            text = skeleton_texts.ONE_OF_EACH.format(
                **named,
                kind=kind,
                members=members,
                imported=self.operation.import_of(kind),
                empty=", ".join(one.empty for one in self.columns),
                sets="".join(one.set for one in self.columns),
            )
        else:
            text = skeleton_texts.RECORD.format(
                **named,
                within=self._within(skeleton_texts.WITHIN),
                key=self._key,
                first=self.columns[0].name,
                members=members,
            )
        imported = [f"from storage.columns import {one}" for one in types(self.columns)]
        if self.parent == "instance":
            text += skeleton_texts.FORGET.format(**named)
            imported += ["from sqlalchemy import delete", "from sqlalchemy.orm import Session"]
            imported += [self.operation.import_of("Instance")]
        return with_imports(text, imported)

    def _within(self, text: str) -> str:
        """What is said of the record that the path leads to, where it names one."""
        return text.format(record=self.parent, table=self.table) if self.parent else ""

    def _migrate(self) -> Path:
        versions = self.root / "storage" / "migrations" / "versions"
        before = max(one.name.partition("_")[0] for one in versions.glob("[0-9]*.py"))
        moment = _later_than(before)
        migration = versions / f"{moment}_{self.table}.py"
        unique = skeleton_texts.UNIQUE_KEY.format(
            table=self.table, key=self._key, first=self.columns[0].name
        )
        migration.write_text(
            skeleton_texts.MIGRATION.format(
                name=self.name,
                table=self.table,
                types=", ".join([*types(self.columns), "Timestamp"]),
                revision=moment,
                before=before,
                own="" if self.is_one_of_each else skeleton_texts.ID_COLUMN,
                key=self._key if self.is_one_of_each else "id",
                within=self._within(skeleton_texts.WITHIN_COLUMN),
                members="".join(one.in_migration for one in self.columns),
                keys=self._within(skeleton_texts.WITHIN_KEY),
                unique="" if self.is_one_of_each else unique,
            )
        )
        return migration

    @property
    def _import(self) -> str:
        return f"from storage.{self.operation.area.stem}.{self.table} import {self.name}"

    def _list(self) -> Path:
        """Among all records, which the database is made of."""
        records = self.root / "storage" / "records.py"
        text = with_imports(records.read_text(), [self._import])
        entry = f'\n__all__ = [\n    "{self.name}",\n'
        records.write_text(text.replace("\n__all__ = [\n", entry))
        return records

    def _views(self) -> Path:
        return self.operation.module("handlers").with_name("views.py")

    def _show(self, views: Path, text: str) -> Path:
        """Beside the handler, after the other views of its area."""
        members = ", ".join(one.shown for one in self.columns)
        view = skeleton_texts.VIEW.format(view=self.view_name, name=self.name, members=members)
        views.write_text(f"{with_imports(text, [self._import]).rstrip()}\n{view}")
        return views

    def _explain(self) -> Path:
        """What a caller reads where the database refuses a second one."""
        place = self.root / "storage" / "conflicts.py"
        first = self.columns[0].name
        columns = f"{self.table}.{self._key}, {self.table}.{first}"
        owner = (self.parent or "organization").replace("_", " ")
        known = f"TODO: the {owner} already has this {self.view_name.replace('_', ' ')}"
        text = place.read_text()
        for end, key, value in (
            (_SENTENCES_END, columns, known),
            (_CONSTRAINTS_END, f"uq_{self.table}_{self._key}_{first}", columns),
        ):
            text = text.replace(end, f'    "{key}": "{value}",\n{end}', 1)
        place.write_text(text)
        return place

    def _decide(self) -> list[Path]:
        """That it goes with an erased instance, and a branch gets none: so it is for most."""
        erasure, fates = self.root / _ERASURE, self.root / _FATES
        call = skeleton_texts.FORGOTTEN.format(table=self.table)
        text = erasure.read_text().replace(_ERASED, f"{call}{_ERASED}", 1)
        imported = f"from storage.{self.operation.area.stem} import {self.table}"
        erasure.write_text(with_imports(text, [imported]))
        text = fates.read_text()
        after = next((one for one in _FATE.finditer(text) if one[1] > self.table), None)
        at = after.start() if after else text.index("\n}", text.index("FATES: Final")) + 1
        fates.write_text(text[:at] + skeleton_texts.FATE.format(table=self.table) + text[at:])
        return [erasure, fates]


def with_imports(text: str, lines: list[str]) -> str:
    """The module with these too, before its others; `tidy` gives them their places."""
    there = text.splitlines()
    missing = [one for one in dict.fromkeys(lines) if one not in there]
    at = next(i for i, one in enumerate(there) if re.match("(from|import) ", one))
    return "\n".join([*there[:at], *missing, *there[at:]]) + "\n"


def _later_than(revision: str) -> str:
    """Now, in minutes; or the next minute, where a migration of this one is there already."""
    now = f"{datetime.now(UTC):{_MOMENT}}"
    next_minute = datetime.strptime(revision, _MOMENT).replace(tzinfo=UTC) + timedelta(minutes=1)
    return max(now, f"{next_minute:{_MOMENT}}")
