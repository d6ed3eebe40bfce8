"""The audit log is read by what was asked for, to the moment."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from contract_tests.storage import tenants
from storage import identifiers
from storage.database import Database
from storage.events import audit
from storage.events.audit import AuditEntry, AuditFilter

TICK = timedelta(milliseconds=1)


@pytest.fixture
def org_id(database: Database) -> str:
    with database.write() as db:
        return tenants.make(db).org_id


def entry(database: Database, org_id: str, at: datetime, **values: Any) -> str:
    with database.write() as db:
        made = audit.append(db, org_id, **{"action": "a", "actor_kind": "system", **values})
        db.execute(update(AuditEntry).where(AuditEntry.id == made).values(created_at=at))
        return made


def found(database: Database, org_id: str, **chosen: Any) -> list[str]:
    with database.read() as db:
        page = audit.page(db, org_id, AuditFilter(**chosen), limit=9, after=None)
        return [each.id for each in page.items]


def test_an_entry_is_found_by_each_of_its_parts(database: Database, org_id: str) -> None:
    with database.read() as db:
        at = database.now(db)
    with database.write() as db:
        other_org = tenants.make(db).org_id
    values = {"action": "b", "actor_id": "usr_1", "target": "inst_1"}
    plain, full = entry(database, org_id, at), entry(database, org_id, at + TICK, **values)
    entry(database, other_org, at)
    assert found(database, org_id) == [full, plain]
    for name, value in values.items():
        assert found(database, org_id, **{name: value}) == [full], name
    assert found(database, org_id, action="a") == [plain]
    assert found(database, org_id, since=at) == [full, plain]
    assert found(database, org_id, since=at + TICK) == [full]
    assert found(database, org_id, until=at + TICK) == [plain]
    assert found(database, org_id, until=at + 2 * TICK) == [full, plain]
    with database.read() as db:
        assert audit.time_of(db, org_id, AuditFilter(), 0) == at + TICK
        assert audit.time_of(db, org_id, AuditFilter(), 1) == at
        assert audit.time_of(db, org_id, AuditFilter(), 2) is None


def test_all_that_is_told_of_an_entry_is_kept(database: Database, org_id: str) -> None:
    told: dict[str, Any] = {
        "actor_kind": "api_key",
        "actor_id": "key_1",
        "target": "inst_1",
        "request_id": "req_1",
        "ip": "192.0.2.1",
        "detail": {"size": "s1"},
    }
    with database.write() as db:
        made = audit.append(db, org_id, "instance.resize", **told)
        bare = audit.append(db, org_id, "instance.wake", actor_kind="system")
    with database.read() as db:
        kept = db.get_one(AuditEntry, made)
        assert kept.action == "instance.resize"
        assert {name: getattr(kept, name) for name in told} == told
        assert db.get_one(AuditEntry, bare).detail == {}
        page = audit.page(db, org_id, AuditFilter(), limit=1, after=None)
        rest = audit.page(db, org_id, AuditFilter(), limit=1, after=page.next_after)
        assert [one.id for one in (*page.items, *rest.items)] == [bare, made]


def test_an_identifier_of_a_moment_comes_before_all_that_were_made_since() -> None:
    moment = datetime.fromisoformat("2026-01-02T03:04:05.678+00:00")
    first = identifiers.first_of("aud_", moment)
    assert first.startswith("aud_")
    assert len(first) == len(identifiers.new("aud_"))
    assert identifiers.first_of("aud_", moment - TICK) < first
    assert first < identifiers.first_of("aud_", moment + TICK) < identifiers.new("aud_")
