"""Alerts that follow from figures: raised once, more severe once, and over once."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from contract_tests.workflows.data import stored
from contract_tests.workflows.events.alerted import (
    alerts,
    look,
    measured,
    plan,
    seen,
    silent_for,
    told,
)
from contract_tests.workflows.stage import Stage
from control.events import publish, raise_
from control.policy import quotas
from control.policy.alert_kinds import KINDS
from control.policy.storage_forecast import WINDOW
from control.workflows.events import alert_evaluation
from handlers.instants import timestamp
from storage import identifiers
from storage.access import invites, organizations, projects, teams, users
from storage.access.api_keys import ApiKey
from storage.catalogue import cells
from storage.data.backups import Backup
from storage.database import now
from storage.events.alerts import Alert
from storage.instances.instances import Instance
from storage.network.domains import Domain

RAISED, RESOLVED = "alert.raised.v1", "alert.resolved.v1"
GB = 10**9


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """Of an organization without quotas."""
    plan(stage, "enterprise")
    return stage


def test_a_cell_that_is_lost_with_twenty_instances_is_one_alert_for_each_team(
    stage: Stage,
) -> None:
    with stage.database.write() as db:
        blue = teams.create(db, stage.org_id, {"name": "Blue", "slug": "blue"}).id
        other = organizations.create(db, name="Other", slug="other", plan="enterprise").id
        project = projects.create(db, other, name="Project", slug="p").id
    for number in range(20):
        stage.instance("running", **({"team_id": blue} if number < 5 else {}))
    elsewhere = stage.instance("running")
    with stage.database.write() as db:
        moved = db.get_one(Instance, elsewhere.id)
        moved.org_id, moved.project_id = other, project
        moved.team_id = teams.everyone_of(other)
    stage.instance("deleted", desired_status="deleted")
    silent_for(stage, 400)
    for _ in range(3):
        look(stage)
    found = {one.team_id: one for one in alerts(stage)}
    everyone = teams.everyone_of(stage.org_id)
    assert set(found) == {blue, everyone, teams.everyone_of(other)}
    assert len(alerts(stage)) == 3
    assert seen(stage) == [("instances_unreachable", "critical", 1, False)] * 3
    assert found[blue].title == "the cell of 5 instances of the team Blue does not respond"
    assert found[everyone].title.startswith("the cell of 15 instances of the team Everyone")
    assert "cell_fake" not in found[blue].reason + found[blue].title
    assert told(stage) == [(RAISED, "instances_unreachable", "critical")] * 3
    silent_for(stage, 10)
    look(stage)
    assert seen(stage) == [("instances_unreachable", "critical", 1, True)] * 3
    assert told(stage).count((RESOLVED, "instances_unreachable", "critical")) == 3


def test_a_silent_cell_becomes_critical_and_does_not_come_and_go(stage: Stage) -> None:
    stage.instance("running")
    one = "instances_unreachable"
    for seconds, severity, times in (
        (90, None, 0),
        (119, None, 0),
        (121, "warning", 1),
        (200, "warning", 1),
        (90, "warning", 1),
        (301, "critical", 2),
        (130, "critical", 2),
        (70, "critical", 2),
        # It is to start, and has not been heard of yet.
        (None, "critical", 2),
    ):
        silent_for(stage, seconds)
        look(stage)
        assert seen(stage) == ([(one, severity, times, False)] if severity else [])
    assert told(stage) == [(RAISED, one, "warning"), (RAISED, one, "critical")]
    silent_for(stage, 20)
    look(stage)
    assert seen(stage) == [(one, "critical", 2, True)]


def test_a_cell_that_never_comes_back_after_a_start_is_told_of(stage: Stage) -> None:
    stage.instance("running")
    silent_for(stage, None)
    look(stage)
    assert seen(stage) == []
    stage.pass_time(400)
    look(stage)
    assert seen(stage) == [("instances_unreachable", "critical", 1, False)]


def test_two_lost_cells_are_two_alerts(stage: Stage) -> None:
    places = {"url": "http+unix:///n", "public_url": "https://c", "instance_domain": "localhost"}
    with stage.database.write() as db:
        cells.register(db, "cell_two", region="local", **places)
    stage.instance("running")
    elsewhere = stage.instance("running")
    with stage.database.write() as db:
        db.get_one(Instance, elsewhere.id).cell_id = "cell_two"
    silent_for(stage, 400)
    silent_for(stage, 400, "cell_two")
    look(stage)
    assert len(alerts(stage)) == 2
    silent_for(stage, 1, "cell_two")
    look(stage)
    assert [one.resolved_at is None for one in alerts(stage)] == [True, False]


def fails(stage: Stage, instance: Instance, event: str, **data: Any) -> None:
    with stage.database.write() as db:
        held = db.get_one(Instance, instance.id)
        publish(db, held.org_id, event, {"instance_id": held.id, **data}, held)


BACKUP: dict[str, Any] = {
    "backup_id": "bkp_01JD7QK3V8Y2M4N6P8R0S2T4V6",
    "kind": "scheduled",
    "reason": "the cell did not respond",
}


def test_what_a_lost_cell_explains_raises_no_other_alert(stage: Stage) -> None:
    instances = [stage.instance("running") for _ in range(3)]
    silent_for(stage, 400)
    look(stage)
    for each in instances:
        fails(stage, each, "backup.failed.v1", **BACKUP)
    assert seen(stage) == [("instances_unreachable", "critical", 4, False)]
    # What is critical by itself is told in any case.
    lost = {"restorable_until": None, "reason": "it was lost", "is_lost": True}
    fails(stage, instances[0], "backup.archiving_interrupted.v1", **lost)
    assert ("backup_archiving_interrupted", "critical", 1, False) in seen(stage)
    silent_for(stage, 1)
    look(stage)
    fails(stage, instances[0], "backup.failed.v1", **BACKUP)
    assert ("backup_failed", "warning", 1, False) in seen(stage)


def test_a_failed_instance_explains_its_own_alerts_and_no_others(stage: Stage) -> None:
    failed, other = stage.instance("running"), stage.instance("running")
    data = {"operation": "run", "reason": "it crashed", "status": "failed"}
    fails(stage, failed, "instance.failed.v1", **data)
    for each in (failed, other):
        fails(stage, each, "backup.failed.v1", **BACKUP)
    assert seen(stage) == [
        ("instance_failed", "critical", 2, False),
        ("backup_failed", "warning", 1, False),
    ]


def test_one_that_runs_on_explains_nothing(stage: Stage) -> None:
    instance = stage.instance("running")
    data = {"operation": "resize", "reason": "no room", "status": "running"}
    fails(stage, instance, "instance.failed.v1", **data)
    fails(stage, instance, "backup.failed.v1", **BACKUP)
    assert [kind for kind, *_ in seen(stage)] == ["instance_failed", "backup_failed"]


def test_the_second_failed_backup_in_a_row_is_critical_also_if_the_first_was_acknowledged(
    stage: Stage,
) -> None:
    instance = stage.instance("running")
    fails(stage, instance, "backup.failed.v1", **BACKUP)
    with stage.database.write() as db:
        db.get_one(Alert, alerts(stage)[0].id).acknowledge("usr_1", now(db))
    fails(stage, instance, "backup.failed.v1", **BACKUP)
    assert [severity for _, severity, _, _ in seen(stage)] == ["warning", "critical"]
    completed = {"kind": "manual", "size_bytes": 1, "stored_bytes": 1, "verified_by": "restored"}
    backup_id = BACKUP["backup_id"]
    fails(stage, instance, "backup.completed.v1", **completed, backup_id=backup_id)
    fails(stage, instance, "backup.failed.v1", **BACKUP)
    assert seen(stage)[-1] == ("backup_failed", "warning", 1, False)


def fills(stage: Stage, instance: Instance, percent: float, a_day: float) -> None:
    """Now so full, after a week in which it grew so much a day, in percent."""
    for hours in range(WINDOW // timedelta(hours=1)):
        used = max(percent - hours * a_day / 24, 0)
        measured(stage, instance, hours, storage_bytes=int(used * GB / 100))


def test_storage_that_will_be_full_is_told_of_in_time(stage: Stage) -> None:
    instance = stage.instance("running")
    one = "storage_filling"
    for percent, a_day, severity, times in (
        (50, 5, None, 0),  # in ten days
        (50, 8, "warning", 1),  # in six
        (50, 6, "warning", 1),  # in eight: neither soon nor over
        (85, 8, "critical", 2),  # within two days
    ):
        fills(stage, instance, percent, a_day)
        look(stage, "alerts.forecast")
        assert seen(stage) == ([(one, severity, times, False)] if severity else [])
    (alert,) = alerts(stage)
    assert alert.title == f"the storage of {instance.name} will be full in 1 day"
    assert alert.reason.startswith("0.85 GB of 1 GB are used, and 0.08 GB are added a day")
    assert told(stage) == [(RAISED, one, "warning"), (RAISED, one, "critical")]
    fills(stage, instance, 50, 0)
    look(stage, "alerts.forecast")
    assert seen(stage) == [(one, "critical", 2, True)]


def test_storage_that_is_nearly_full_is_critical_however_slowly_it_fills(stage: Stage) -> None:
    instance = stage.instance("running")
    for percent, raised, over in ((94, 0, False), (96, 1, False), (91, 1, False), (89, 1, True)):
        measured(stage, instance, 0, storage_bytes=percent * GB // 100)
        look(stage, "alerts.forecast")
        expected = [("storage_filling", "critical", 1, over)] if raised else []
        assert seen(stage) == expected, percent
    assert alerts(stage)[0].title == f"the storage of {instance.name} is 96 % full"


def test_of_an_instance_that_nobody_measures_nothing_is_said_to_be_over(stage: Stage) -> None:
    instance = stage.instance("running")
    measured(stage, instance, 0, storage_bytes=97 * GB // 100)
    look(stage, "alerts.forecast")
    stage.pass_time(10 * 86_400)
    look(stage, "alerts.forecast")
    assert seen(stage) == [("storage_filling", "critical", 1, False)]
    measured(stage, instance, 0, storage_bytes=GB // 10)
    look(stage, "alerts.forecast")
    assert seen(stage) == [("storage_filling", "critical", 1, True)]


def test_an_acknowledged_one_comes_back_only_when_it_is_worse(stage: Stage) -> None:
    instance = stage.instance("running")
    fills(stage, instance, 50, 8)
    look(stage, "alerts.forecast")
    with stage.database.write() as db:
        db.get_one(Alert, alerts(stage)[0].id).acknowledge("usr_1", now(db))
    look(stage, "alerts.forecast")
    assert len(alerts(stage)) == 1
    fills(stage, instance, 85, 8)
    look(stage, "alerts.forecast")
    assert [severity for _, severity, _, _ in seen(stage)] == ["warning", "critical"]
    fills(stage, instance, 50, 0)
    look(stage, "alerts.forecast")
    assert all(over for *_, over in seen(stage))


def test_connections_that_stay_near_the_limit_are_told_of(stage: Stage) -> None:
    instance = stage.instance("running")  # of size f0, with 20 connections
    one = "connections_saturated"
    for before, current, severity, times, over in (
        (10, 20, None, 0, False),
        (20, 10, None, 0, False),
        (15, 15, None, 0, False),
        (16, 16, "warning", 1, False),
        (16, 1, "warning", 1, False),
        (14, 14, "warning", 1, False),
        (19, 20, "critical", 2, False),
        (13, 13, "critical", 2, True),
    ):
        measured(stage, instance, 1, connections_max=before)
        measured(stage, instance, 0, connections_max=current)
        look(stage)
        assert seen(stage) == ([(one, severity, times, over)] if severity else []), before


def test_a_single_hour_says_nothing_of_connections(stage: Stage) -> None:
    instance = stage.instance("running")
    measured(stage, instance, 0, connections_max=20)
    look(stage)
    assert seen(stage) == []


def certified(stage: Stage, instance: Instance, hostname: str, **told_of: Any) -> None:
    days = told_of.pop("days")
    with stage.database.write() as db:
        until = now(db) + timedelta(days=days)
        values = {"issued_by": "local", "status": "issued", "status_reason": None, **told_of}
        ids = {"id": identifiers.new("dom_"), "org_id": stage.org_id, "instance_id": instance.id}
        names = {"hostname": hostname, "cname_target": "db.localhost", "status": "verified"}
        certificate = {**values, "not_after": timestamp(until), "retry_at": None}
        db.add(Domain(**ids, **names, certificate=certificate))


FAILED = {"issued_by": "acme", "status": "failed", "status_reason": "the CA refused it"}
IN_ORDER = {"issued_by": "acme", "status": "issued"}


@pytest.mark.parametrize(
    ("told_of", "severity"),
    [
        ({"days": 15.5}, None),
        ({"days": 14.5}, None),
        ({"days": 13.5}, "warning"),
        ({"days": 2.5}, "critical"),
        ({"days": -1}, "critical"),
        ({"days": 20, **FAILED}, None),
        ({"days": 13.5, **FAILED}, "warning"),
        ({"days": 2.5, **FAILED}, "critical"),
        # It is valid for six days in all.
        ({"days": 2.5, **IN_ORDER}, None),
        ({"days": 0.5, **IN_ORDER}, "critical"),
    ],
    ids=str,
)
def test_a_certificate_near_its_end_is_told_of(
    stage: Stage, told_of: dict[str, Any], severity: str | None
) -> None:
    certified(stage, stage.instance("running"), "db.example.com", **told_of)
    look(stage, "alerts.forecast")
    found = [("certificate_expiring", severity, 1, False)] if severity else []
    assert seen(stage) == found


def test_several_domains_of_an_instance_are_one_alert(stage: Stage) -> None:
    instance = stage.instance("running")
    for number in range(8):
        certified(stage, instance, f"d{number}.example.com", days=10 - number, **FAILED)
    look(stage, "alerts.forecast")
    (alert,) = alerts(stage)
    assert alert.title == f"a certificate of {instance.name} expires in 2 days"
    assert alert.reason == (
        "d7.example.com: the CA refused it; also d6.example.com, d5.example.com, d4.example.com,"
        " d3.example.com and 3 more"
    )
    with stage.database.write() as db:
        for each in db.query(Domain):
            db.delete(each)
    look(stage, "alerts.forecast")
    assert alerts(stage)[0].resolved_at is not None


def test_quotas_are_told_of_once_and_by_resource(stage: Stage) -> None:
    plan(stage, "solo")
    made = [stage.instance("running") for _ in range(7)]
    look(stage)
    assert seen(stage) == []
    made.append(stage.instance("running"))
    for _ in range(2):
        look(stage)
    assert seen(stage) == [("quota_threshold", "info", 1, False)]
    (alert,) = alerts(stage)
    assert alert.title == "Org uses 80 % of its quota of instances"
    assert (alert.team_id, alert.instance_id, alert.cause) == (None, None, "instances")
    assert "8 of 10 that the Solo plan allows" in alert.reason
    made += [stage.instance("running") for _ in range(2)]
    with stage.database.write() as db:
        for number in range(8):
            projects.create(db, stage.org_id, name=f"P{number}", slug=f"p{number}")
    for _ in range(2):
        look(stage)
    assert seen(stage) == [
        ("quota_threshold", "warning", 2, False),
        ("quota_threshold", "info", 1, False),
    ]
    with stage.database.write() as db:
        for each in made[:3]:
            db.get_one(Instance, each.id).desired_status = "deleted"
    look(stage)
    assert [over for *_, over in seen(stage)] == [True, False]
    kinds = [(kind, severity) for kind, _, severity in told(stage)]
    assert kinds == [(RAISED, "info"), (RAISED, "warning"), (RAISED, "info"), (RESOLVED, "warning")]


def test_every_quota_that_is_watched_is_counted(stage: Stage) -> None:
    plan(stage, "free")
    with stage.database.write() as db:
        user = users.create(db, email="ada@example.com", name="Ada")
        for number in range(2):
            invites.create(
                db,
                stage.org_id,
                email=f"{number}@example.com",
                role="member",
                token_hash=str(number),
                invited_by=user.id,
                inviter_id=user.id,
                expires_at=now(db) + timedelta(days=7),
            )
        for number in range(10):
            key(stage, db, user.id, f"key_{number}")
        for number in range(2):
            projects.create(db, stage.org_id, name=f"P{number}", slug=f"p{number}")
    for _ in range(2):
        stored.backup(stage.database, stage.cell, stage.instance("running"))
    with stage.database.write() as db:
        for each in db.scalars(select(Backup)):
            each.stored_bytes = 5 * GB
    look(stage)
    assert {one.cause for one in alerts(stage)} == set(quotas.WATCHED)


def key(stage: Stage, db: Any, user_id: str, name: str) -> ApiKey:
    made = ApiKey(
        id=identifiers.new("key_"),
        org_id=stage.org_id,
        name=name,
        role="member",
        created_by=user_id,
        prefix=name,
        token_hash=identifiers.new("h"),
    )
    db.add(made)
    db.flush()
    return made


@pytest.mark.parametrize("ended", ["revoked", "unsuspended"])
def test_the_alert_about_a_suspended_key_is_over_however_that_ends(
    stage: Stage, ended: str
) -> None:
    data = {"reason": "leaked", "source": "content", "url": ""}
    with stage.database.write() as db:
        user = users.create(db, email="ada@example.com", name="Ada")
        keys = [key(stage, db, user.id, f"key_{number}") for number in range(2)]
        for each in keys:
            each.suspend("it leaked", now(db))
            told_of = {**data, "key_id": each.id}
            publish(db, stage.org_id, "api_key.suspended.v1", told_of)
    look(stage)
    assert seen(stage) == [("api_key_suspended", "critical", 1, False)] * 2
    with stage.database.write() as db:
        first = db.get_one(ApiKey, keys[0].id)
        if ended == "revoked":
            first.revoke(now(db))
        else:
            first.suspended_at = None
    look(stage)
    assert [over for *_, over in seen(stage)] == [True, False]


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.quiet_for])
def test_some_are_over_when_nothing_has_happened_for_long_enough(stage: Stage, kind: str) -> None:
    quiet = KINDS[kind].quiet_for
    assert quiet is not None
    with stage.database.write() as db:
        org = organizations.fetch(db, stage.org_id)
        raise_(db, org, kind, "warning", "so it is", "why", cause="usr_1")
    stage.pass_time(quiet.total_seconds() - 60)
    look(stage)
    assert seen(stage) == [(kind, "warning", 1, False)]
    stage.pass_time(120)
    look(stage)
    assert seen(stage) == [(kind, "warning", 1, True)]


def test_one_that_cannot_be_raised_holds_up_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stage.instance("running"), stage.instance("running")
    for each in (first, second):
        measured(stage, each, 0, storage_bytes=97 * GB // 100)
    held = alert_evaluation._held

    def failing(db: Any, subject: Any) -> Any:
        if subject.instance_id == first.id:
            raise ValueError("it is not as it must be")
        return held(db, subject)

    monkeypatch.setattr(alert_evaluation, "_held", failing)
    look(stage, "alerts.forecast")
    assert [one.instance_id for one in alerts(stage)] == [second.id]
