"""Quotas, suspended keys, and what is over when all is quiet."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from contract_tests.workflows.data import stored
from contract_tests.workflows.events.alerted import (
    alerts,
    look,
    plan,
    seen,
    told,
)
from contract_tests.workflows.stage import Stage
from control.events import publish, raise_
from control.policy import quotas
from control.policy.alert_kinds import KINDS, SIGN_INS
from storage import identifiers
from storage.access import invites, organizations, projects, users
from storage.access.api_keys import ApiKey
from storage.data.backups import Backup
from storage.database import now
from storage.events.alerts import Alert
from storage.instances.instances import Instance

RAISED, RESOLVED = "alert.raised.v1", "alert.resolved.v1"
GB = 10**9


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """Of an organization without quotas."""
    plan(stage, "enterprise")
    return stage


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


def test_one_that_happened_lately_is_not_over_with_an_acknowledged_one(stage: Stage) -> None:
    def happens() -> None:
        with stage.database.write() as db:
            org = organizations.fetch(db, stage.org_id)
            raise_(db, org, SIGN_INS, "warning", "so it is", "why", cause="usr_1")

    happens()
    with stage.database.write() as db:
        db.get_one(Alert, alerts(stage)[0].id).acknowledge("usr_1", now(db))
    quiet = KINDS[SIGN_INS].quiet_for
    assert quiet is not None
    stage.pass_time(quiet.total_seconds() - 60)
    happens()
    stage.pass_time(120)
    look(stage)
    assert [over for *_, over in seen(stage)][-1] is False
    stage.pass_time(quiet.total_seconds())
    look(stage)
    assert [over for *_, over in seen(stage)] == [True, True]


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
