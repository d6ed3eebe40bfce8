"""When backups are due, how long they are kept, and what plans allow; against models of each."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy import backups
from control.policy.backups import BackupHistory, BackupOverrides, BackupSchedule, KeptBackup
from control.policy.plans import PLANS

ID = "inst_01JD7QK3V8Y2M4N6P8R0S2T4V6"
NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)

moments = st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 -- of the zone beside them
starts = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59))
schedules = st.builds(BackupSchedule, st.sampled_from(sorted(backups.PERIODS)), st.just(7), starts)
ids = st.text("0123456789ABCDEFGHJKMNPQRSTVWXYZ", min_size=26, max_size=26).map("inst_{}".format)


@given(schedule=schedules, instance_id=ids, moment=moments)
def test_a_moment_is_in_one_slot(
    schedule: BackupSchedule, instance_id: str, moment: datetime
) -> None:
    slot = schedule.last_slot(instance_id, moment)
    period = backups.PERIODS[schedule.frequency]
    assert slot <= moment < slot + period
    assert schedule.last_slot(instance_id, slot) == slot
    assert schedule.next_slot(instance_id, moment) == slot + period


@given(schedule=schedules, instance_id=ids, moment=moments)
def test_a_slot_begins_in_its_window(
    schedule: BackupSchedule, instance_id: str, moment: datetime
) -> None:
    if schedule.frequency == "hourly":
        return
    slot = schedule.last_slot(instance_id, moment)
    hours, minutes = map(int, schedule.window_start.split(":"))
    into = slot - slot.replace(hour=hours, minute=minutes, second=0, microsecond=0)
    assert into % timedelta(days=1) < backups.WINDOW
    assert schedule.window_end == f"{(hours + 2) % 24:02}:{minutes:02}"


@given(schedule=schedules, instance_id=ids, since=moments, moment=moments)
def test_what_was_missed_lies_between(
    schedule: BackupSchedule, instance_id: str, since: datetime, moment: datetime
) -> None:
    slot = schedule.last_slot(instance_id, moment)
    missed = backups.missed_slots(schedule, since, slot)
    assert len(missed) <= backups.MISSED_MAX
    assert len(set(missed)) == len(missed)
    for each in missed:
        assert since + schedule.apart <= each < slot
        assert schedule.last_slot(instance_id, each) == each
    if len(missed) < backups.MISSED_MAX:
        first = min([*missed, slot]) - backups.PERIODS[schedule.frequency]
        assert first - since < schedule.apart


def test_instances_are_spread_over_the_window_and_the_week() -> None:
    many = [f"inst_{number:026}" for number in range(700)]
    daily, weekly = (BackupSchedule(name, 7, "23:30") for name in ("daily", "weekly"))
    minutes = {daily.last_slot(each, NOW).minute for each in many}
    assert len(minutes) == 60
    days = [weekly.last_slot(each, NOW).weekday() for each in many]
    assert all(50 < days.count(day) < 160 for day in range(7))


def test_the_plan_caps_what_was_chosen() -> None:
    chosen = BackupOverrides("hourly", 60, "04:30")
    free, enterprise = PLANS["free"], PLANS["enterprise"]
    assert backups.effective(free, chosen) == BackupSchedule("daily", 3, "04:30")
    assert backups.effective(enterprise, chosen) == BackupSchedule("hourly", 60, "04:30")
    assert backups.effective(free, BackupOverrides()) == BackupSchedule("daily", 3, "02:00")
    assert backups.effective(free, BackupOverrides("weekly", 1)).frequency == "weekly"
    assert backups.frequencies(free) == ["weekly", "daily"]
    assert backups.frequencies(PLANS["team"]) == ["weekly", "daily", "hourly"]


@pytest.mark.parametrize(
    ("asked", "pointers"),
    [
        ({"frequency": "hourly", "retention_days": 4}, ["/frequency", "/retention_days"]),
        ({"frequency": "daily", "retention_days": 3}, []),
        ({"frequency": None, "retention_days": None, "window_start": None}, []),
    ],
)
def test_what_the_plan_does_not_allow_is_refused(
    asked: dict[str, object], pointers: list[str]
) -> None:
    found = backups.check_overrides(PLANS["free"], asked)
    assert [one["pointer"] for one in found] == pointers
    assert {one["keyword"] for one in found} <= {"plan"}


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({}, []),
        ({"name": "copy", "size": "s1"}, []),
        ({"confirm_name": "sales"}, ["/confirm_name"]),
        ({"mode": "in_place", "confirm_name": "sales"}, []),
        ({"mode": "in_place"}, ["/confirm_name"]),
        ({"mode": "in_place", "confirm_name": "Sales"}, ["/confirm_name"]),
        ({"mode": "in_place", "confirm_name": "sales", "size": "s1"}, ["/size"]),
        ({"mode": "in_place", "name": "a"}, ["/name", "/confirm_name"]),
    ],
)  # fmt: skip
def test_what_a_restore_may_say(body: dict[str, str], wrong: list[str]) -> None:
    assert [one["pointer"] for one in backups.check_restore(body, "sales")] == wrong


DAILY = BackupSchedule("daily", 7, "02:00")
DAY = timedelta(days=1)


def turns(**values: datetime | None) -> BackupHistory:
    chosen: dict[str, datetime | None] = {
        "ready_at": NOW - 30 * DAY,
        "paused_since": None,
        "newest_slot": None,
        "newest_data": None,
    }
    return BackupHistory(**(chosen | values))  # type: ignore[arg-type]


def test_each_slot_is_due_once_and_only_the_last_is_made_up_for() -> None:
    slot = DAILY.last_slot(ID, NOW)
    for before in (None, slot - DAY, slot - 20 * DAY):
        assert backups.due_slot(DAILY, ID, turns(newest_slot=before), NOW) == slot
    assert backups.due_slot(DAILY, ID, turns(newest_slot=slot), NOW) is None
    next_ = DAILY.next_slot(ID, NOW)
    assert backups.due_slot(DAILY, ID, turns(newest_slot=slot), next_) == next_


def test_what_has_just_begun_waits_for_its_next_slot() -> None:
    began = DAILY.last_slot(ID, NOW) + timedelta(minutes=1)
    assert backups.due_slot(DAILY, ID, turns(ready_at=began), NOW) is None
    assert backups.due_slot(DAILY, ID, turns(ready_at=began), NOW + DAY) is not None


def test_the_first_backup_is_made_within_a_day_also_of_what_is_weekly() -> None:
    weekly = BackupSchedule("weekly", 7, "02:00")
    began = turns(ready_at=NOW)
    due = [
        hour for hour in range(24 * 7) if backups.due_slot(weekly, ID, began, NOW + hour * DAY / 24)
    ]
    assert due
    assert due[0] <= 24
    slot = backups.due_slot(weekly, ID, began, NOW + DAY)
    since = turns(ready_at=NOW, newest_slot=slot)
    assert backups.due_slot(weekly, ID, since, NOW + DAY) is None
    assert backups.due_slot(weekly, ID, since, NOW + 8 * DAY) is not None


def test_what_is_paused_and_backed_up_since_needs_no_other() -> None:
    paused = NOW - 3 * DAY
    kept = turns(paused_since=paused, newest_data=paused + timedelta(hours=1))
    assert backups.due_slot(DAILY, ID, kept, NOW) is None
    for older in (None, paused - timedelta(seconds=1), paused):
        stale = turns(paused_since=paused, newest_data=older)
        assert backups.due_slot(DAILY, ID, stale, NOW) is not None


kept_backups = st.lists(
    st.builds(
        KeptBackup,
        st.uuids().map(str),
        st.sampled_from(["scheduled", "manual", "pre_change"]),
        st.integers(0, 100).map(lambda days: NOW - timedelta(days=days)),
    ),
    max_size=12,
)


@given(kept=kept_backups, days=st.integers(1, 90), needing=st.sets(st.integers(0, 11)))
def test_retention_takes_what_is_over_and_leaves_what_is_needed(
    kept: list[KeptBackup], days: int, needing: set[int]
) -> None:
    needed = {one.id for number, one in enumerate(kept) if number in needing}
    gone = set(backups.expired(kept, days, NOW, needed))
    left = [one for one in kept if one.id not in gone]
    if kept:
        newest = max(one.completed_at for one in kept)
        assert any(one.completed_at == newest for one in left), "the newest stays"
    assert not gone & needed
    for one in kept:
        age = NOW - one.completed_at
        is_newest = one.completed_at == max(each.completed_at for each in kept)
        if one.kind == "pre_change" and age < timedelta(days=days):
            later = [each for each in kept if each.completed_at >= one.completed_at]
            changes = [each for each in later if each.kind == "pre_change" and each is not one]
            assert one.id not in gone or len(changes) >= backups.PRE_CHANGE_KEPT
        elif one.kind == "manual" or age < timedelta(days=days):
            assert one.id not in gone
        elif not is_newest and one.id not in needed:
            assert one.id in gone
    assert backups.expired(left, days, NOW, needed) == [], "once is enough"


@given(
    parents=st.lists(st.integers(0, 20) | st.none(), max_size=20),
    days=st.integers(1, 30),
    needing=st.sets(st.integers(0, 19)),
)
def test_what_is_kept_has_all_that_it_builds_on(
    parents: list[int | None], days: int, needing: set[int]
) -> None:
    kept = [
        KeptBackup(
            f"bkp_{number:02}",
            "scheduled",
            NOW - timedelta(days=40 - 2 * number),
            f"bkp_{parent:02}" if parent is not None and parent < number else None,
        )
        for number, parent in enumerate(parents)
    ]
    gone = set(backups.expired(kept, days, NOW, {f"bkp_{each:02}" for each in needing}))
    assert not gone & {one.parent_id for one in kept if one.id not in gone}
    building = {one.parent_id for one in kept}
    for one in kept[:-1]:
        is_over = NOW - one.completed_at >= timedelta(days=days)
        if is_over and one.id not in building and int(one.id[-2:]) not in needing:
            assert one.id in gone, "what nobody needs goes"


def test_the_score_is_the_share_of_verified_backups() -> None:
    assert backups.score(0, 0, 0) is None
    assert backups.score(59, 1, 59) == 98
    assert backups.score(0, 3, 0) == 0


def test_a_month_ends_where_the_next_begins() -> None:
    assert backups.month("2026-12") == (
        datetime(2026, 12, 1, tzinfo=UTC),
        datetime(2027, 1, 1, tzinfo=UTC),
    )
    assert backups.month("2028-02")[1] == datetime(2028, 3, 1, tzinfo=UTC)


def test_moving_the_window_brings_no_more_backups_than_the_plan_allows() -> None:
    moment = datetime.fromisoformat("2026-11-26T00:43:00+00:00")
    made = None
    slots = []
    for minute in range(0, 36 * 60, 7):
        now = moment + timedelta(minutes=minute)
        chosen = BackupSchedule("daily", 3, f"{now - timedelta(hours=2):%H:%M}")
        turns = BackupHistory(moment - timedelta(days=9), None, made, None)
        slot = backups.due_slot(chosen, "inst_1", turns, now)
        if slot is not None:
            slots.append(slot)
            made = slot
    assert 1 <= len(slots) <= 2


def test_of_backups_before_changes_the_newest_are_kept() -> None:
    moment = datetime.fromisoformat("2026-11-26T00:43:00+00:00")
    kept = [
        KeptBackup(f"bkp_{number}", kind, moment + timedelta(minutes=number))
        for number, kind in enumerate(["scheduled", "manual", *["pre_change"] * 9])
    ]
    assert backups.expired(kept, 3, moment) == ["bkp_2", "bkp_3", "bkp_4", "bkp_5"]
    assert backups.expired(kept, 3, moment, needed=["bkp_3"]) == ["bkp_2", "bkp_4", "bkp_5"]
