"""What may be asked of backups: their settings, copies, restores and dumps; and what is refused."""

from dataclasses import replace

import pytest

from control.policy import backups
from control.policy.backups import BackupOverrides
from control.policy.catalogue import ENGINES
from control.policy.plans import FREE, PLANS, SOLO, TEAM, Plan
from control.policy.violations import Violation

Told = tuple[str, str, str]

FREE_FREQUENCY = (
    "/frequency", "plan",
    "the free plan allows backups daily at most; choose one of weekly, daily, or change the plan",
)  # fmt: skip
FREE_RETENTION = (
    "/retention_days", "plan",
    "the free plan keeps backups for at most 3 days; choose less, or change the plan",
)  # fmt: skip
FREE_COPIES = (
    "/copy_target", "plan",
    "the free plan has no copies of backups; choose none, or change the plan",
)  # fmt: skip
UNCONFIRMED = (
    "/confirm_name", "const",
    "a restore in place replaces all data: type the instance's name to confirm it",
)  # fmt: skip


def told(found: list[Violation]) -> list[Told]:
    return [(one["pointer"], one["keyword"], one["message"]) for one in found]


@pytest.mark.parametrize(
    ("plan", "asked", "refused"),
    [
        (FREE, {"frequency": "hourly"}, [FREE_FREQUENCY]),
        (FREE, {"retention_days": 4}, [FREE_RETENTION]),
        (FREE, {"copy_target": "second_store"}, [FREE_COPIES]),
        (
            FREE,
            {"frequency": "hourly", "retention_days": 4, "copy_target": "second_store"},
            [FREE_FREQUENCY, FREE_RETENTION, FREE_COPIES],
        ),
        (FREE, {"frequency": "daily", "retention_days": 3, "copy_target": "none"}, []),
        (FREE, dict.fromkeys(("frequency", "retention_days", "window_start", "copy_target")), []),
        (TEAM, {"frequency": "hourly", "retention_days": 30, "copy_target": "second_store"}, []),
        (TEAM, {"copy_target": "none"}, []),
        (FREE, {}, []),
    ],
)  # fmt: skip
def test_what_the_plan_does_not_allow_is_refused(
    plan: Plan, asked: dict[str, object], refused: list[Told]
) -> None:
    assert told(backups.check_overrides(plan, asked)) == refused


def test_a_plan_of_weekly_backups_has_no_other() -> None:
    weekly = replace(FREE, backup_frequency_max="weekly")
    assert backups.effective(weekly, BackupOverrides()).frequency == "weekly"
    assert backups.effective(weekly, BackupOverrides("hourly")).frequency == "weekly"


def test_team_and_enterprise_have_copies() -> None:
    targets = {name: backups.copy_targets(plan) for name, plan in PLANS.items()}
    assert targets == {
        "free": ["none"],
        "solo": ["none"],
        "team": ["none", "second_store"],
        "enterprise": ["none", "second_store"],
    }


@pytest.mark.parametrize(
    ("plan", "chosen", "target"),
    [
        (TEAM, "second_store", "second_store"),
        (TEAM, "none", "none"),
        (TEAM, None, "none"),
        (TEAM, "third_store", "none"),
        (SOLO, "second_store", "none"),
        (SOLO, None, "none"),
    ],
)
def test_backups_are_copied_where_that_was_chosen_and_the_plan_has_it(
    plan: Plan, chosen: str | None, target: str
) -> None:
    assert backups.copy_target(plan, chosen) == target
    assert backups.is_copied(plan, chosen) is (target != "none")


@pytest.mark.parametrize("mode", [{}, {"mode": "new_instance"}])
def test_a_restore_into_a_new_instance_is_not_confirmed(mode: dict[str, str]) -> None:
    assert backups.check_restore(mode, "sales") == []
    assert backups.check_restore({**mode, "name": "copy", "size": "s1"}, "sales") == []
    assert told(backups.check_restore({**mode, "confirm_name": "sales"}, "sales")) == [
        ("/confirm_name", "mode", "only a restore in place is confirmed by a name")
    ]


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ({"confirm_name": "sales"}, []),
        ({}, [UNCONFIRMED]),
        ({"confirm_name": "Sales"}, [UNCONFIRMED]),
        ({"confirm_name": None}, [UNCONFIRMED]),
    ],
)
def test_a_restore_in_place_is_confirmed_by_the_name(
    body: dict[str, str | None], refused: list[Told]
) -> None:
    assert told(backups.check_restore({"mode": "in_place", **body}, "sales")) == refused


@pytest.mark.parametrize("member", ["name", "size", "storage_bytes", "project_id"])
def test_a_restore_in_place_leaves_the_instance_as_it_is(member: str) -> None:
    body = {"mode": "in_place", "confirm_name": "sales", member: None}
    told_of_it = (
        f"/{member}",
        "mode",
        f"a restore in place has no {member}: the instance stays as it is",
    )
    assert told(backups.check_restore(body, "sales")) == [told_of_it]
    unconfirmed = {**body, "confirm_name": "other"}
    assert told(backups.check_restore(unconfirmed, "sales")) == [told_of_it, UNCONFIRMED]


@pytest.mark.parametrize("engine", ["postgres", "timescaledb", "mysql", "mariadb"])
def test_one_of_several_databases_can_be_dumped(engine: str) -> None:
    assert backups.check_dump(engine, {"database": "sales"}) == []
    assert backups.check_dump(engine, {}) == []


@pytest.mark.parametrize("engine", ["valkey", "mongodb", "duckdb", "qdrant"])
def test_where_there_is_one_database_a_dump_names_none(engine: str) -> None:
    assert backups.check_dump(engine, {}) == []
    assert told(backups.check_dump(engine, {"database": "sales"})) == [
        (
            "/database",
            "engine",
            f"a dump of {ENGINES[engine].name} has all that there is; leave the database out",
        )
    ]
