"""The chain of the audit log: numbers without gaps, whoever seals, and in the order of commits."""

import hashlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, func, select, update

from contract_tests.databases import Databases
from contract_tests.storage import tenants
from contract_tests.storage.query_plans import query_plans
from handlers import instants
from storage import identifiers
from storage.database import Database
from storage.events import audit, audit_chain
from storage.events.audit import AuditEntry
from storage.events.audit_chain import NOTHING, AuditHead


@pytest.fixture
def org_id(database: Database) -> str:
    with database.write() as db:
        return tenants.make(db).org_id


def append(database: Database, org_id: str | None, count: int = 1, **values: Any) -> list[str]:
    with database.write() as db:
        given = {"actor_kind": "system", **values}
        return [audit.append(db, org_id, "test.done", **given) for _ in range(count)]


def seal(database: Database, org_id: str | None, limit: int = 100) -> int:
    with database.write() as db:
        return audit_chain.seal(db, org_id, limit)


def sealed(database: Database, org_id: str | None, after: int = 0) -> list[AuditEntry]:
    with database.read() as db:
        return audit.sealed_after(db, org_id, after, 100)


def head(database: Database, org_id: str | None) -> AuditHead:
    with database.read() as db:
        return db.get_one(AuditHead, audit_chain.chain_of(org_id))


def test_entries_are_numbered_from_one_and_chained(database: Database, org_id: str) -> None:
    made = append(database, org_id, 3, detail={"b": 1, "a": "é"})
    assert sealed(database, org_id) == []
    with database.read() as db:
        assert audit_chain.unsealed(db, 9) == [org_id]
    assert [seal(database, org_id, 2), seal(database, org_id, 2)] == [2, 1]
    assert seal(database, org_id) == 0
    found = sealed(database, org_id)
    assert [(each.id, each.seq) for each in found] == list(zip(made, (1, 2, 3), strict=True))
    assert [each.seq for each in sealed(database, org_id, after=2)] == [3]
    previous = NOTHING
    for each in found:
        previous = audit_chain.hash_of(previous, audit_chain.members_of(each))
        assert each.hash == previous
    assert (head(database, org_id).seq, head(database, org_id).hash) == (3, previous)
    with database.read() as db:
        assert audit_chain.unsealed(db, 9) == []


def test_a_hash_is_made_as_the_guide_says(database: Database, org_id: str) -> None:
    """Byte by byte, as everybody can who has an entry and the hash before it."""
    (made,) = append(database, org_id, target="", ip="192.0.2.1", detail={"b": [1.5], "a": "é"})
    seal(database, org_id)
    (entry,) = sealed(database, org_id)
    at = instants.timestamp(entry.created_at)
    written = (
        f'{NOTHING}\n{{"action":"test.done","actor_id":null,"actor_kind":"system",'
        f'"detail":{{"a":"é","b":[1.5]}},"id":"{made}","ip":"192.0.2.1","org_id":"{org_id}",'
        f'"request_id":null,"seq":1,"target":null,"time":"{at}"}}'
    )
    assert entry.hash == hashlib.sha256(written.encode()).hexdigest()


def test_each_organization_has_a_chain_and_so_have_entries_without_one(
    database: Database, org_id: str
) -> None:
    with database.write() as db:
        other = tenants.make(db).org_id
    for of in (org_id, None, other, None):
        append(database, of)
    with database.read() as db:
        assert set(audit_chain.unsealed(db, 9)) == {org_id, other, None}
    for of in (org_id, None, other):
        seal(database, of)
    assert [each.seq for each in sealed(database, None)] == [1, 2]
    assert [each.seq for each in sealed(database, other)] == [1]
    assert head(database, None).chain == audit_chain.WITHOUT_ORG


@pytest.fixture
def postgresql(databases: Databases) -> Iterator[Database]:
    """SQLite has one writer, whom nobody overtakes."""
    url = databases.migrated("postgresql")
    made = Database(url)
    yield made
    made.dispose()
    databases.give_back(url)


def test_what_is_committed_late_gets_a_later_number(postgresql: Database) -> None:
    """A long transaction, whose entry is older than ones that were sealed before its commit."""
    database = postgresql
    with database.write() as db:
        org_id = tenants.make(db).org_id
    with database.write() as late:
        old = audit.append(late, org_id, "test.done", actor_kind="system")
        (new,) = append(database, org_id)
        assert seal(database, org_id) == 1
    assert old < new
    assert seal(database, org_id) == 1
    assert [(each.id, each.seq) for each in sealed(database, org_id)] == [(new, 1), (old, 2)]


def test_two_that_seal_at_once_give_each_number_once(database: Database, org_id: str) -> None:
    append(database, org_id, 60)
    together = threading.Barrier(4)

    def run() -> None:
        together.wait()
        while seal(database, org_id, 7):
            pass

    threads = [threading.Thread(target=run) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found = sealed(database, org_id)
    assert [each.seq for each in found] == list(range(1, 61))
    assert [each.id for each in found] == sorted(each.id for each in found)
    assert head(database, org_id).hash == found[-1].hash


class _Ended(BaseException):
    """Stands for a process that ends."""


def test_a_worker_that_ends_between_leaves_nothing_half_sealed(
    database: Database, org_id: str
) -> None:
    append(database, org_id, 2)
    ended_at = statements = 0

    @event.listens_for(database.engine, "before_cursor_execute")
    def _end(*_of: Any) -> None:
        nonlocal statements
        statements += 1
        if statements == ended_at:
            raise _Ended

    for number in range(1, 20):
        statements, ended_at = 0, number
        try:
            seal(database, org_id)
        except _Ended:
            ended_at = 0
            assert sealed(database, org_id) == []
            continue
        break
    ended_at = 0
    assert number > 3
    assert [each.seq for each in sealed(database, org_id)] == [1, 2]


def test_the_oldest_are_forgotten_first_so_many_at_once_and_only_when_sealed(
    database: Database, org_id: str
) -> None:
    made = append(database, org_id, 3)
    with database.write() as db:
        now = database.now(db)
        assert audit_chain.forget_old(db, now + timedelta(minutes=1), 9) == 0
    seal(database, org_id)
    with database.write() as db:
        assert audit_chain.forget_old(db, now - timedelta(minutes=1), 9) == 0
        assert audit_chain.forget_old(db, now + timedelta(minutes=1), 2) == 2
    (left,) = sealed(database, org_id)
    begins = head(database, org_id)
    assert (left.id, left.seq, begins.kept_from) == (made[2], 3, 3)
    assert audit_chain.hash_of(begins.hash_before, audit_chain.members_of(left)) == left.hash
    append(database, None, 2)
    seal(database, None)
    with database.write() as db:
        assert audit_chain.forget_old(db, now + timedelta(minutes=1), 9) == 3
        assert db.scalar(select(func.count()).select_from(AuditEntry)) == 0
    append(database, org_id)
    seal(database, org_id)
    assert [each.seq for each in sealed(database, org_id)] == [4]
    ends = head(database, org_id)
    assert (ends.kept_from, ends.hash_before) == (4, left.hash)


def test_only_the_beginning_of_a_chain_is_forgotten(database: Database, org_id: str) -> None:
    """One that was committed late waits for those that are before it in the chain."""
    append(database, org_id)
    seal(database, org_id)
    (late,) = append(database, org_id)
    with database.write() as db:
        moment = database.now(db) - timedelta(days=1)
        older = identifiers.first_of("aud_", moment)
        db.execute(update(AuditEntry).where(AuditEntry.id == late).values(id=older))
    seal(database, org_id)
    with database.write() as db:
        assert audit_chain.forget_old(db, moment + timedelta(minutes=1), 9) == 0
    assert [each.seq for each in sealed(database, org_id)] == [1, 2]


def test_what_is_unsealed_is_found_by_an_index_of_its_own(database: Database, org_id: str) -> None:
    """However long the log is, at every turn."""
    append(database, org_id)
    with database.write() as db, query_plans(db) as plans:
        audit_chain.unsealed(db, 9)
        audit_chain.seal(db, org_id, 9)
        audit_chain.seal(db, None, 9)
    for plan in plans:
        assert "audit_heads" in plan or "INDEX ix_audit_unsealed" in plan, plan
