"""What is known of an instance, by table: whether it outlives the instance, and a branch gets it.

A new table of instances fails here until both are decided, and done.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import JSON, CheckConstraint, Column, ForeignKey, Table, func, insert, or_, select
from sqlalchemy.orm import Session

from contract_tests.workflows.stage import Stage
from control import ordering
from control.ordering.requester import Requester
from control.policy.placement import Overcommit
from control.policy.price_lists import packaged
from storage import identifiers, records
from storage.access import organizations, users
from storage.catalogue import cells
from storage.columns import Timestamp
from storage.instances import instances
from storage.instances.instances import Instance


@dataclass(frozen=True)
class Fate:
    """What becomes of an instance's rows in a table.

    `kept` is why they outlive an erased instance, or None: `erase` removes them. `handed_on` says
    whether a branch begins with those of its source. The operation's description says both.
    """

    kept: str | None
    handed_on: bool = False


FATES: Final = {
    "alerts": Fate(kept=None),
    "approvals": Fate(kept="who ordered it, and who approved that, is told as long as it is kept"),
    "backup_copies": Fate(kept=None),
    "backup_settings": Fate(kept=None),
    "backups": Fate(kept=None),
    "changes": Fate(kept="the history is read for as long as audit_kept_days says"),
    "domains": Fate(kept="they are shown with the instance, which can still be fetched"),
    "events": Fate(kept="they are delivered for as long as events_kept_days says"),
    "migrations": Fate(kept=None),
    "networks": Fate(kept="it is shown with the instance, which can be fetched", handed_on=True),
    "one_time_urls": Fate(kept="they are removed when they expire, a minute later"),
    "readings": Fate(kept=None),
    "recovery_windows": Fate(kept=None),
    "restores": Fate(kept=None),
    "samples": Fate(kept="what was used is accounted for"),
    "spans": Fate(kept="what was used is accounted for"),
}
CHOSEN: Final[dict[str, dict[str, Any]]] = {
    # A size that there is not has no place.
    "changes": {"kind": "name"},
    # One that has not ended is, with an event that tells of its source.
    "migrations": {"status": "completed"},
    # One that nobody ever replaced is not handed on.
    "networks": {"version": 1},
}
"""By table, what a row must have to be a right one."""
BEGUN_WITH: Final = {"changes", "events"}
"""Tables to which an order itself may write, of the new instance and of nothing else."""
_ONE_OF: Final = re.compile(r"(\w+) IN \('(\w+)'")
_MOMENT: Final = datetime(2026, 1, 1, tzinfo=UTC)


def of_instances() -> dict[str, Table]:
    """The tables whose rows name an instance, by their names."""
    named = {each.local_table for each in records.Record.registry.mappers}
    tables = {str(each.name): each for each in named if isinstance(each, Table)}
    return {name: each for name, each in tables.items() if name != "instances" and owners(each)}


def owners(table: Table) -> list[Column[Any]]:
    """Its columns that name an instance, also where no foreign key says so.

    A list of several is of none of them alone.
    """
    return [
        each
        for each in table.columns
        if ("instance_id" in each.name and not isinstance(each.type, JSON))
        or any(key.target_fullname == "instances.id" for key in each.foreign_keys)
    ]


def test_each_table_of_instances_has_its_fate() -> None:
    undecided = sorted(of_instances().keys() - FATES.keys())
    assert not undecided, (
        f"decide what becomes of the rows in {', '.join(undecided)} when an instance is erased, and"
        " what a branch gets of them: a Fate in FATES of this file (docs/adding-an-operation.md,"
        " step 5)"
    )
    assert not FATES.keys() - of_instances().keys(), "FATES has tables that there are not"


def test_an_erased_instance_leaves_what_has_a_reason_to_stay(stage: Stage) -> None:
    instance, other = stage.instance("erasing"), stage.instance("running")
    add_rows(stage, instance, other)
    stage.start("instances.erase", instance)
    stage.settle()
    assert stage.fetch(instance).status == "erased"
    stay = {name for name, fate in FATES.items() if fate.kept}
    left = with_rows(stage, instance)
    assert not left - stay, (
        f"{', '.join(sorted(left - stay))}: rows are left of an erased instance; call `forget` of"
        " their module in `erase` (control/workflows/instances/erasure.py), or say in FATES why"
        " they stay"
    )
    assert not stay - left, f"{', '.join(sorted(stay - left))}: erased, and FATES says it stays"
    assert with_rows(stage, other) == {*FATES}, "what is known of another instance was removed"


def test_a_branch_begins_with_what_is_handed_on(stage: Stage) -> None:
    source = stage.instance("running")
    add_rows(stage, source)
    with stage.database.write() as db:
        cell = cells.fetch(db, "cell_fake")
        cell.engines = [{"engine": "duckdb", "versions": ["1.5"], "source": "fake"}]
        cell.last_seen_at = stage.database.now(db)
        org = organizations.fetch(db, stage.org_id)
        by = Requester(db, org, "usr_somebody", Overcommit(), stage.database.now(db), packaged())
        found = instances.fetch(db, stage.org_id, source.id)
        branch = ordering.place_branch(by, found, {})
    handed_on = {name for name, fate in FATES.items() if fate.handed_on}
    gotten = with_rows(stage, branch) - BEGUN_WITH
    assert gotten == handed_on, (
        f"a branch begins with {', '.join(sorted(gotten)) or 'nothing'}, and by FATES with"
        f" {', '.join(sorted(handed_on))}: mend _place_copy (control/ordering/placing.py) or FATES"
    )


def add_rows(stage: Stage, *of: Instance) -> None:
    """One in each table of instances, of each of these."""
    with stage.database.write() as db:
        somebody = users.create(db, email=f"{identifiers.new('')}@example.org", name="Somebody").id
        for name, table in of_instances().items():
            people = {each.parent.name: somebody for each in table.foreign_keys if is_user(each)}
            for instance in of:
                given = row(table, instance) | people | CHOSEN.get(name, {})
                db.execute(insert(table).values(given))


def is_user(reference: ForeignKey) -> bool:
    return reference.target_fullname == "users.id"


def row(table: Table, instance: Instance) -> dict[str, Any]:
    """A value for each column that must have one; of an enumeration the first."""
    checks = [str(c.sqltext) for c in table.constraints if isinstance(c, CheckConstraint)]
    firsts = {found[1]: found[2] for check in checks if (found := _ONE_OF.search(check))}
    owned = {each.name: instance.id for each in owners(table)} | {"org_id": instance.org_id}
    return {
        each.name: owned.get(each.name) or firsts.get(each.name) or value_of(each)
        for each in table.columns
        if each.name in owned
        or (not each.nullable and each.default is None and each is not table.autoincrement_column)
    }


def value_of(column: Column[Any]) -> Any:
    if isinstance(column.type, Timestamp):
        return _MOMENT
    kind = column.type.python_type
    if kind is str:
        return identifiers.new("x_")
    return kind() if kind in {bool, int, float} else {}


def with_rows(stage: Stage, instance: Instance) -> set[str]:
    """The tables that have any of the instance."""
    with stage.database.read() as db:
        return {name for name, table in of_instances().items() if has_rows(db, table, instance.id)}


def has_rows(db: Session, table: Table, instance_id: str) -> bool:
    of_it = or_(*(each == instance_id for each in owners(table)))
    return bool(db.scalar(select(func.count()).select_from(table).where(of_it)))
