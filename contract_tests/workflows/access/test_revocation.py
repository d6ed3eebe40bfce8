"""Consoles and followed logs end once the key or session that began them is not in force."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, event, select, update
from sqlalchemy.orm import Session

from contract_tests.by_day import one_in
from contract_tests.workflows.known import WORK, take_turn
from contract_tests.workflows.stage import Stage
from control.cells.client import CellRefused
from control.workflows.access.revocation import PERMISSIONS, lapsed_urls
from storage import identifiers
from storage.access import memberships, users
from storage.access.api_keys import ApiKey
from storage.access.memberships import Membership
from storage.access.organizations import Organization
from storage.access.sessions import UserSession
from storage.database import now
from storage.instances.instances import Instance
from storage.instances.one_time_urls import OneTimeUrl

KEY, SESSION = "key_of_the_test", "ses_of_the_test"
BOTH = [{"holder": KEY, "kind": "logs"}, {"holder": SESSION, "kind": "console"}]

URLS = [(holder, action) for holder in (KEY, SESSION) for action in PERMISSIONS]


def change(record: type[ApiKey | UserSession], **values: object) -> Callable[[Session], object]:
    return lambda db: db.execute(update(record).values(**values))


def is_old(record: type[ApiKey | UserSession], limit: str) -> Callable[[Session], object]:
    """An hour, which is more than the organization allows from now on."""

    def act(db: Session) -> None:
        change(record, created_at=now(db) - timedelta(hours=1))(db)
        db.execute(update(Organization).values(**{limit: 3600}))

    return act


def elsewhere(db: Session) -> None:
    db.execute(delete(Membership))


ENDS: dict[str, tuple[Callable[[Session], object], set[str]]] = {
    "a key is revoked": (lambda db: change(ApiKey, revoked_at=now(db))(db), {SESSION}),
    "a key is suspended": (lambda db: change(ApiKey, suspended_at=now(db))(db), {SESSION}),
    "a key expires": (lambda db: change(ApiKey, expires_at=now(db))(db), {SESSION}),
    "a key has other scopes": (change(ApiKey, scopes=["instances:read"]), {SESSION}),
    "a session is revoked": (lambda db: change(UserSession, revoked_at=now(db))(db), {KEY}),
    "a session expires": (lambda db: change(UserSession, expires_at=now(db))(db), {KEY}),
    "a role is taken away": (
        lambda db: db.execute(update(Membership).values(role="auditor")),
        set(),
    ),
    "a role holds in other teams only": (
        lambda db: db.execute(update(Membership).values(role="member", teams_only=True)),
        set(),
    ),
    "a membership ends": (elsewhere, set()),
    "the organization wants newer keys": (is_old(ApiKey, "api_key_max_age_s"), {SESSION}),
    "the organization wants newer sessions": (is_old(UserSession, "session_max_age_s"), {KEY}),
}


@pytest.mark.parametrize("ends", ENDS)
def test_access_ends_with_the_right_to_it(stage: Stage, ends: str) -> None:
    instance = stage.instance("running")
    grant(stage)
    stage.cell.becomes(instance.id, access=BOTH)
    reconcile(stage)
    assert held(stage, instance.id) == {KEY, SESSION}
    act, left = ENDS[ends]
    with stage.database.write() as db:
        act(db)
    reconcile(stage)
    assert held(stage, instance.id) == left


def test_a_key_of_another_organization_holds_nothing(stage: Stage) -> None:
    instance = stage.instance("running")
    stage.cell.becomes(instance.id, access=[{"holder": "key_unknown", "kind": "logs"}])
    reconcile(stage)
    assert held(stage, instance.id) == set()


@pytest.mark.parametrize("ends", one_in(3, ENDS))
def test_unused_urls_end_with_the_right_to_them(stage: Stage, ends: str) -> None:
    instance = stage.instance("running")
    grant(stage)
    with stage.database.write() as db:
        for holder, action in URLS:
            db.add(url_of(instance, holder, action, now(db) + timedelta(seconds=60)))
    end_urls(stage)
    assert not stage.cell.ended_urls
    act, left = ENDS[ends]
    with stage.database.write() as db:
        act(db)
    end_urls(stage)
    wanted = {f"{holder} {action}" for holder, action in URLS if holder not in left}
    assert stage.cell.ended_urls == wanted
    stage.cell.ended_urls.clear()
    end_urls(stage)
    assert not stage.cell.ended_urls, "a cell is told once"


def test_urls_are_looked_at_only_while_there_are_any(stage: Stage) -> None:
    """Each second, so that none ends later than two; and idle services write nothing for it."""
    instance = stage.instance("running")
    (schedule,) = (each for each in WORK.schedules if each.workflow.kind == "access.end_urls")
    assert schedule.lanes is not None
    assert schedule.every_s <= 1
    with stage.database.write() as db:
        db.add(url_of(instance, KEY, "reveal", now(db) - timedelta(seconds=1)))
        assert schedule.lanes(db) == {}
        db.add(url_of(instance, KEY, "logs", now(db) + timedelta(seconds=60)))
        db.flush()
        assert list(schedule.lanes(db)) == [f"access:{instance.cell_id}"]


def test_a_url_of_an_instance_that_is_gone_holds_up_no_other(stage: Stage) -> None:
    gone, instance = stage.instance("running"), stage.instance("running")
    with stage.database.write() as db:
        for number, each in enumerate((gone, instance)):
            db.add(url_of(each, f"key_{number}", "logs", now(db) + timedelta(seconds=60)))

    def refuse(action: str, instance_id: str) -> None:
        if (action, instance_id) == ("end_access", gone.id):
            raise CellRefused("there is no such instance")

    stage.cell.before = refuse
    end_urls(stage)
    assert stage.cell.ended_urls == {"key_1 logs"}


def test_a_crowd_of_urls_makes_nobody_elses_last_longer(stage: Stage) -> None:
    """What is asked of the database grows with those who asked, not with what they asked for."""
    instance = stage.instance("running")

    def statements() -> int:
        asked = 0

        @event.listens_for(stage.database.engine, "before_cursor_execute")
        def count(*_of: Any) -> None:
            nonlocal asked
            asked += 1

        lapsed_urls(stage.database, instance.cell_id)
        event.remove(stage.database.engine, "before_cursor_execute", count)
        return asked

    grant(stage)
    few = 0
    for number in range(40):
        with stage.database.write() as db:
            url = url_of(instance, KEY, "logs", now(db) + timedelta(seconds=60))
            url.id = f"url_{number}"
            db.add(url)
        few = few or statements()
    assert statements() == few


def test_urls_that_have_expired_are_forgotten(stage: Stage) -> None:
    instance = stage.instance("running")
    with stage.database.write() as db:
        db.add(url_of(instance, KEY, "reveal", now(db) - timedelta(seconds=1)))
        db.add(url_of(instance, KEY, "logs", now(db) + timedelta(seconds=60)))
    with stage.database.write() as db:
        take_turn(db, "housekeeping")
    stage.settle()
    with stage.database.read() as db:
        assert [url.action for url in db.scalars(select(OneTimeUrl))] == ["logs"]


def url_of(instance: Instance, holder: str, action: str, expires_at: datetime) -> OneTimeUrl:
    return OneTimeUrl(
        id=f"{holder} {action}",
        org_id=instance.org_id,
        instance_id=instance.id,
        holder=holder,
        action=action,
        expires_at=expires_at,
    )


def held(stage: Stage, instance_id: str) -> set[str]:
    return {each["holder"] for each in (stage.cell.observe(instance_id) or {})["access"]}


def reconcile(stage: Stage) -> None:
    turn(stage, "reconcile")


def end_urls(stage: Stage) -> None:
    turn(stage, "access.end_urls")


def turn(stage: Stage, kind: str) -> None:
    with stage.database.write() as db:
        take_turn(db, kind)
    stage.settle()


def grant(stage: Stage) -> None:
    """An owner, with a key of all rights and a session."""
    with stage.database.write() as db:
        user = users.create(db, email=f"{identifiers.new('')}@example.org", name="Owner")
        memberships.create(db, stage.org_id, user.id, "owner")
        key = ApiKey(
            id=KEY,
            org_id=stage.org_id,
            name="key",
            role="owner",
            created_by=user.id,
            prefix="mk_live_",
            token_hash="0",
        )
        session = UserSession(
            id=SESSION,
            user_id=user.id,
            token_hash="1",
            prefix="ms_",
            expires_at=now(db) + timedelta(days=1),
        )
        db.add_all([key, session])
