"""When backups are due, how long they are kept, and what plans allow; against models of each."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy import backups
from control.policy.backups import BackupHistory, BackupOverrides, BackupSchedule, KeptBackup
from control.policy.plans import PLANS

ID = "inst_01JD7QK3V8Y2M4N6P8R0S2T4V6"
NEXT_ID = "inst_01JD7QK3V8Y2M4N6P8R0S2T4V7"
FIRST_ID = "inst_00000000000000000000000001"
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


@pytest.mark.parametrize(
    ("frequency", "slots"),
    [
        ("hourly", ["2026-11-25T11:31:53", "2026-11-25T11:40:03", "2026-11-25T11:45:41"]),
        ("daily", ["2026-11-25T03:01:53", "2026-11-25T04:10:03", "2026-11-25T03:15:41"]),
        ("weekly", ["2026-11-20T03:01:53", "2026-11-22T04:10:03", "2026-11-19T03:15:41"]),
    ],
)
def test_an_instance_has_the_same_turn_in_every_release(frequency: str, slots: list[str]) -> None:
    schedule = BackupSchedule(frequency, 7, "02:30")
    for instance_id, slot in zip((ID, FIRST_ID, NEXT_ID), slots, strict=True):
        assert schedule.last_slot(instance_id, NOW) == datetime.fromisoformat(f"{slot}+00:00")


def test_the_plan_caps_what_was_chosen() -> None:
    chosen = BackupOverrides("hourly", 60, "04:30")
    free, enterprise = PLANS["free"], PLANS["enterprise"]
    assert backups.effective(free, chosen) == BackupSchedule("daily", 3, "04:30")
    assert backups.effective(enterprise, chosen) == BackupSchedule("hourly", 60, "04:30")
    assert backups.effective(free, BackupOverrides()) == BackupSchedule("daily", 3, "02:00")
    assert backups.effective(free, BackupOverrides("weekly", 1)).frequency == "weekly"
    assert backups.frequencies(free) == ["weekly", "daily"]
    assert backups.frequencies(PLANS["team"]) == ["weekly", "daily", "hourly"]


DAILY = BackupSchedule("daily", 7, "02:00")
WEEKLY = BackupSchedule("weekly", 7, "02:00")
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


def test_a_slot_is_due_that_is_just_far_enough_from_the_last_backup() -> None:
    slot, second = DAILY.last_slot(ID, NOW), timedelta(seconds=1)
    assert DAILY.apart == timedelta(hours=22)
    for before, due in ((slot - DAILY.apart, slot), (slot - DAILY.apart + second, None)):
        assert backups.due_slot(DAILY, ID, turns(newest_slot=before), NOW) == due


def test_a_weekly_backup_is_followed_by_one_a_week_later() -> None:
    slot = WEEKLY.last_slot(ID, NOW)
    after = turns(newest_slot=slot)
    days = [day for day in range(9) if backups.due_slot(WEEKLY, ID, after, slot + day * DAY)]
    assert days == [7, 8]


@pytest.mark.parametrize("began", [timedelta(0), timedelta(minutes=1)])
def test_what_has_just_begun_waits_for_its_next_slot(began: timedelta) -> None:
    history = turns(ready_at=DAILY.last_slot(ID, NOW) + began)
    next_ = DAILY.next_slot(ID, NOW)
    assert backups.due_slot(DAILY, ID, history, NOW) is None
    assert backups.due_slot(DAILY, ID, history, NOW + DAY) == next_


def test_a_slot_counts_as_missed_that_is_just_far_enough_from_the_last_backup() -> None:
    slot, second = DAILY.last_slot(ID, NOW), timedelta(seconds=1)
    since = slot - 2 * DAY - DAILY.apart
    assert backups.missed_slots(DAILY, since, slot) == [slot - DAY, slot - 2 * DAY]
    assert backups.missed_slots(DAILY, since + second, slot) == [slot - DAY]


def test_the_first_backup_is_made_within_a_day_also_of_what_is_weekly() -> None:
    began = turns(ready_at=NOW)
    due = [
        hour for hour in range(24 * 7) if backups.due_slot(WEEKLY, ID, began, NOW + hour * DAY / 24)
    ]
    assert due
    assert due[0] <= 24
    slot = backups.due_slot(WEEKLY, ID, began, NOW + DAY)
    since = turns(ready_at=NOW, newest_slot=slot)
    assert backups.due_slot(WEEKLY, ID, since, NOW + DAY) is None
    assert backups.due_slot(WEEKLY, ID, since, NOW + 8 * DAY) is not None


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


def test_a_backup_goes_as_soon_as_its_days_are_over() -> None:
    old = KeptBackup("bkp_1", "scheduled", NOW - 3 * DAY)
    newest = KeptBackup("bkp_2", "scheduled", NOW)
    assert backups.expired([old, newest], 3, NOW) == ["bkp_1"]
    assert backups.expired([old, newest], 3, NOW - timedelta(microseconds=1)) == []


def test_ancestors_are_all_that_a_backup_builds_on() -> None:
    parents = {"full": None, "first": "full", "second": "first", "other": "full", "lone": "gone"}
    assert backups.ancestors(parents, ["second", "other"]) == {"full", "first"}
    assert backups.ancestors(parents, ["full"]) == set()
    assert backups.ancestors(parents, ["lone", "unknown"]) == {"gone"}


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
