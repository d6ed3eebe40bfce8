"""Teams are told of each threshold once a month, whoever looks and whatever the budget becomes."""

import threading
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from contract_tests.workflows.known import enqueue, take_turn
from contract_tests.workflows.stage import Stage
from control.policy import months as policy
from control.policy.months import Month
from control.workflows.access import budgets
from storage import identifiers
from storage.access import budgets as notices
from storage.access import teams
from storage.access.teams import Team
from storage.errors import StateConflict
from storage.events.alerts import Alert
from storage.events.events import Event
from storage.instances.instances import Instance
from storage.instances.spans import BilledSpan

LIMIT = 1_000


def go_to(stage: Stage, moment: datetime) -> None:
    with stage.database.read() as db:
        stage.pass_time((moment - stage.database.now(db)).total_seconds())


@pytest.fixture
def month(stage: Stage) -> Month:
    """The next one, an hour before its end, so that what costs something lies behind."""
    with stage.database.read() as db:
        month = policy.month_of(policy.month_of(stage.database.now(db)).end)
    go_to(stage, month.end - timedelta(hours=1))
    return month


@pytest.fixture
def instance(stage: Stage) -> Instance:
    return stage.instance("running")


def team(stage: Stage, name: str = "Blue", budget: int | None = LIMIT) -> str:
    values = {"name": name, "slug": name.lower(), "monthly_budget_cents": budget}
    with stage.database.write() as db:
        return teams.create(db, stage.org_id, values).id


def spends(stage: Stage, instance: Instance, team_id: str, month: Month, percent: int) -> None:
    """So many percent of LIMIT, by something that has ended: a whole month of `s0` costs that."""
    begin, length = month.begin, timedelta(seconds=month.seconds) * percent / 100
    with stage.database.write() as db:
        db.add(
            BilledSpan(
                org_id=stage.org_id,
                instance_id=instance.id,
                team_id=team_id,
                size="s0",
                storage_bytes=10**9,
                runs=True,
                since=begin,
                until=begin + length,
            )
        )


def look(stage: Stage) -> None:
    with stage.database.write() as db:
        take_turn(db, "budgets.watch")
    while stage.turn():
        pass


def told(stage: Stage) -> list[tuple[str, str, int]]:
    rows = select(Event).where(Event.type == "budget.threshold.v1").order_by(Event.seq)
    with stage.database.read() as db:
        found = [one.data for one in db.scalars(rows)]
    return [(one["team_id"], one["month"], one["threshold_percent"]) for one in found]


def alerts(stage: Stage) -> list[tuple[str, int, bool]]:
    """Of how severe each is, how often it happened, and whether it is over; oldest first."""
    with stage.database.read() as db:
        found = list(db.scalars(select(Alert).order_by(Alert.id)))
    assert all((one.kind, one.instance_id) == ("budget_threshold", None) for one in found)
    return [(one.severity, one.occurrences, one.resolved_at is not None) for one in found]


def test_each_threshold_is_told_once(stage: Stage, instance: Instance, month: Month) -> None:
    blue = team(stage)
    heard: list[int] = []
    for percent, more in ((49, []), (1, [50]), (29, []), (1, [80]), (19, []), (1, [100]), (50, [])):
        spends(stage, instance, blue, month, percent)
        heard += more
        for _ in range(2):
            look(stage)
            assert told(stage) == [(blue, month.name, each) for each in heard]
    assert alerts(stage) == [("critical", 3, False)]


def test_what_is_reached_at_once_is_told_at_once(
    stage: Stage, instance: Instance, month: Month
) -> None:
    blue = team(stage, budget=800)
    spends(stage, instance, blue, month, 90)
    look(stage)
    assert told(stage) == [(blue, month.name, each) for each in (50, 80, 100)]
    with stage.database.read() as db:
        event = db.scalars(select(Event).where(Event.type == "budget.threshold.v1")).first()
        alert = db.scalars(select(Alert)).one()
    assert event is not None
    assert event.data == {
        "team_id": blue,
        "month": month.name,
        "threshold_percent": 50,
        "currency": "USD",
        "month_to_date_cents": 900,
        "forecast_cents": 900,
        "monthly_budget_cents": 800,
        "reason": f"9.00 USD of 8.00 USD are spent in {month.name}",
    }
    assert (alert.title, alert.team_id) == ("the team Blue has spent 100 % of its budget", blue)
    assert alert.reason == event.data["reason"]


def test_a_raised_budget_is_not_told_of_again(
    stage: Stage, instance: Instance, month: Month
) -> None:
    blue = team(stage)
    spends(stage, instance, blue, month, 60)
    spends(stage, instance, blue, month, 60)
    look(stage)
    assert [percent for *_, percent in told(stage)] == [50, 80, 100]
    for budget, is_over in ((2 * LIMIT, True), (LIMIT, True)):
        change(stage, blue, budget)
        look(stage)
        assert len(told(stage)) == 3
        # What it said is not so any more; and nobody is told again when it is.
        assert alerts(stage) == [("critical", 3, is_over)]


def test_a_lowered_one_is_told_of_what_it_reaches_and_a_removed_one_alerts_nobody(
    stage: Stage, instance: Instance, month: Month
) -> None:
    blue = team(stage)
    spends(stage, instance, blue, month, 50)
    look(stage)
    change(stage, blue, 600)
    look(stage)
    assert [percent for *_, percent in told(stage)] == [50, 80]
    assert alerts(stage) == [("warning", 2, False)]
    change(stage, blue, None)
    look(stage)
    assert (len(told(stage)), alerts(stage)) == (2, [("warning", 2, True)])


def change(stage: Stage, team_id: str, budget: int | None) -> None:
    with stage.database.write() as db:
        db.get_one(Team, team_id).monthly_budget_cents = budget


def test_a_new_month_begins_anew(stage: Stage, instance: Instance, month: Month) -> None:
    blue = team(stage)
    spends(stage, instance, blue, month, 85)
    look(stage)
    following = policy.month_of(month.end)
    go_to(stage, following.begin + timedelta(seconds=1))
    look(stage)
    assert alerts(stage) == [("warning", 2, True)]
    go_to(stage, following.end - timedelta(hours=1))
    spends(stage, instance, blue, following, 55)
    look(stage)
    assert told(stage) == [
        (blue, month.name, 50),
        (blue, month.name, 80),
        (blue, following.name, 50),
    ]
    assert alerts(stage) == [("warning", 2, True), ("info", 1, False)]


def test_an_alert_of_last_month_is_over_also_when_this_one_is_spent_by_the_first_look(
    stage: Stage, instance: Instance, month: Month
) -> None:
    blue = team(stage)
    spends(stage, instance, blue, month, 85)
    look(stage)
    following = policy.month_of(month.end)
    go_to(stage, following.end - timedelta(hours=1))
    spends(stage, instance, blue, following, 90)
    look(stage)
    assert alerts(stage) == [("warning", 2, True), ("warning", 2, False)]


def test_an_acknowledged_one_is_raised_anew_by_the_next_threshold(
    stage: Stage, instance: Instance, month: Month
) -> None:
    blue = team(stage)
    spends(stage, instance, blue, month, 50)
    look(stage)
    with stage.database.write() as db:
        db.scalars(select(Alert)).one().acknowledge("usr_somebody", stage.database.now(db))
    look(stage)
    assert alerts(stage) == [("info", 1, False)]
    spends(stage, instance, blue, month, 50)
    look(stage)
    assert alerts(stage) == [("info", 1, False), ("critical", 2, False)]


def test_a_team_is_told_of_its_own_spend_and_only_with_a_budget(
    stage: Stage, instance: Instance, month: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "_AT_ONCE", 2)
    spending = [team(stage, f"S{number}") for number in range(5)]
    team(stage, "Saving")
    without = team(stage, "Without", None)
    nothing = team(stage, "Nothing", 0)
    for team_id in (*spending, without):
        spends(stage, instance, team_id, month, 55)
    look(stage)
    assert sorted(told(stage)) == [(each, month.name, 50) for each in sorted(spending)]
    # A budget of nothing is reached by the first that is spent.
    spends(stage, instance, nothing, month, 1)
    look(stage)
    assert [percent for one, _, percent in told(stage) if one == nothing] == [50, 80, 100]


def test_what_lasts_is_counted_until_now_and_forecast_to_the_end(
    stage: Stage, month: Month
) -> None:
    """An instance of the worker's own, without a row that a test wrote."""
    blue = team(stage)
    made = stage.instance("requested", team_id=blue)
    with stage.database.write() as db:
        db.get_one(Instance, made.id).size = "s0"
    stage.start("instances.provision", made)
    stage.settle()
    assert stage.fetch(made).status == "running"
    look(stage)
    # It has run since before that month began.
    assert [percent for *_, percent in told(stage)] == [50, 80]
    with stage.database.read() as db:
        data = db.scalars(select(Event).where(Event.type == "budget.threshold.v1")).first()
    assert data is not None
    assert data.data["forecast_cents"] == LIMIT
    assert LIMIT * 0.99 < data.data["month_to_date_cents"] < LIMIT


def test_two_workers_tell_each_threshold_once(
    stage: Stage, instance: Instance, month: Month
) -> None:
    teams_of_it = [team(stage, f"T{number}") for number in range(6)]
    for team_id in teams_of_it:
        spends(stage, instance, team_id, month, 85)
    with stage.database.write() as db:
        for lane in ("one", "two"):
            enqueue(db, "budgets.watch", lane)
    begin = threading.Barrier(2)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            begin.wait(10)
            while stage.turn():
                pass
        except BaseException as error:  # noqa: BLE001 -- told by the test
            failed.append(error)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for each in workers:
        each.start()
    for each in workers:
        each.join(60)
    assert failed == []
    assert sorted(told(stage)) == sorted(
        (team_id, month.name, percent) for team_id in teams_of_it for percent in (50, 80)
    )
    assert alerts(stage) == [("warning", 2, False)] * 6


def test_a_team_that_goes_while_it_is_looked_at_stops_nobody(
    stage: Stage, instance: Instance, month: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    blue = team(stage)
    spends(stage, instance, blue, month, 50)
    found = budgets._wanting

    def with_one_that_went(*asked: Any) -> list[str]:
        return [identifiers.new("team_"), *found(*asked)]

    monkeypatch.setattr(budgets, "_wanting", with_one_that_went)
    look(stage)
    assert told(stage) == [(blue, month.name, 50)]


def test_the_database_takes_a_notice_once(stage: Stage, month: Month) -> None:
    """Also from a worker that had not looked at what was told, or held no row."""
    blue = team(stage)
    for refused in (False, True):
        answer = pytest.raises(StateConflict) if refused else nullcontext()
        with answer, stage.database.write() as db:
            notices.note(db, db.get_one(Team, blue), month.name, 50)
