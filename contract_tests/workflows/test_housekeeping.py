"""Housekeeping: rows go when their time is over, or when one scope has too many of them."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import Stage
from control.workflows import housekeeping
from storage import identifiers, replays
from storage.access import passkeys
from storage.database import now
from storage.events import audit, audit_chain, events
from storage.records import AuditEntry, Event, Replay, Work
from storage.roles import support_grants

PAUSED = {"instance_id": "inst_01JD7QK3V8Y2M4N6P8R0S2T4V6", "paused_by": "idle"}


def clean(stage: Stage) -> None:
    with stage.database.write() as db:
        take_turn(db, "housekeeping")
    stage.settle()


def test_housekeeping_forgets_what_is_over(stage: Stage) -> None:
    with stage.database.write() as db:
        expires = now(db) + timedelta(hours=24)
        for number in range(3):
            db.add(
                Replay(
                    scope=stage.org_id,
                    operation="instances.create",
                    key=str(number),
                    body_sha256="0" * 64,
                    expires_at=expires,
                )
            )
    clean(stage)
    with stage.database.read() as db:
        assert replays.find(db, stage.org_id, "instances.create", "0") is not None
    stage.pass_time(24 * 3600 + 60)
    clean(stage)
    with stage.database.read() as db:
        assert db.scalars(select(Replay)).all() == []
        assert len(db.scalars(select(Work)).all()) == 1, "what ended a day ago is gone too"


def test_challenges_are_forgotten_once_they_are_over(stage: Stage) -> None:
    with stage.database.write() as db:
        for name, seconds in (("soon", 300), ("later", 900)):
            passkeys.use_challenge(db, name, now(db) + timedelta(seconds=seconds))
    stage.pass_time(301)
    clean(stage)
    with stage.database.read() as db:
        assert list(db.scalars(select(passkeys.UsedChallenge.challenge_hash))) == ["later"]


def test_records_are_kept_for_their_days(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_AT_ONCE", 2)
    for days in (500, 450, 410, 300, 100, 30):
        moment = datetime.now(UTC) - timedelta(days=days)
        with stage.database.write() as db:
            entry = audit.append(db, stage.org_id, "test.done", actor_kind="system")
            written = update(AuditEntry).where(AuditEntry.id == entry)
            db.execute(written.values(id=identifiers.first_of("aud_", moment)))
            event = events.append(db, stage.org_id, "instance.paused.v1", PAUSED)
            event.id = identifiers.first_of("evt_", moment)
    with stage.database.write() as db:
        audit_chain.seal(db, stage.org_id, 9)
    clean(stage)
    with stage.database.read() as db:
        entries = db.scalars(select(AuditEntry).where(AuditEntry.action == "test.done")).all()
        told = db.scalars(select(Event).where(Event.type == "instance.paused.v1")).all()
    assert (len(entries), len(told)) == (3, 1)


def test_a_scope_keeps_its_latest_replays(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "REPLAYS_MAX", 3)
    with stage.database.write() as db:
        for number in range(5):
            for scope in ("org_crowded", "org_calm")[: 1 if number > 2 else 2]:
                expires = now(db) + timedelta(hours=number + 1)
                db.add(
                    Replay(
                        scope=scope,
                        operation="instances.create",
                        key=str(number),
                        body_sha256="0" * 64,
                        expires_at=expires,
                    )
                )
    clean(stage)
    with stage.database.read() as db:
        kept = [(one.scope, one.key) for one in db.scalars(select(Replay))]
    calm, crowded = [("org_calm", key) for key in "012"], [("org_crowded", key) for key in "234"]
    assert sorted(kept) == calm + crowded


def test_nobody_waits_while_much_is_deleted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite there is one writer, and a worker may have been away for days."""
    monkeypatch.setattr(housekeeping, "_AT_ONCE", 2)
    with stage.database.write() as db:
        for number in range(7):
            values = {"scope": "org_x", "operation": "x", "body_sha256": "0" * 64}
            db.add(Replay(key=str(number), expires_at=now(db), **values))
    stage.pass_time(60)
    deleted: list[int] = []
    forget = replays.forget_expired

    def forgets(db: Session, before: datetime, limit: int) -> int:
        deleted.append(forget(db, before, limit))
        return deleted[-1]

    monkeypatch.setattr(replays, "forget_expired", forgets)
    clean(stage)
    assert deleted == [2, 2, 2, 1]


def test_support_grants_are_kept_for_as_long_as_what_was_done_by_them(stage: Stage) -> None:
    with stage.database.write() as db:
        for days in (450, 30):
            moment = now(db) - timedelta(days=days)
            until = moment + timedelta(hours=1)
            made = support_grants.create(
                db,
                stage.org_id,
                permissions=["org:read"],
                instance_ids=None,
                reason="so",
                created_by="usr_1",
                expires_at=until,
            )
            made.id = identifiers.first_of("sg_", moment)
    clean(stage)
    with stage.database.read() as db:
        (left,) = support_grants.page(db, stage.org_id, limit=9, after=None).items
        assert left.expires_at > now(db) - timedelta(days=40)
