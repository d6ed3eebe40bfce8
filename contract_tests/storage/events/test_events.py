"""Events are numbered as they are committed: whoever has read up to one has missed none before."""

import threading
from datetime import timedelta

import pytest
from sqlalchemy import delete, select

from contract_tests.storage import tenants
from storage.access import projects, teams
from storage.access.scopes import Scope
from storage.access.teams import Team
from storage.database import Database
from storage.events import events
from storage.events.events import Event


@pytest.fixture
def org_id(database: Database) -> str:
    with database.write() as db:
        return tenants.make(db).org_id


def append(database: Database, org_id: str) -> str:
    with database.write() as db:
        return events.append(db, org_id, "instance.paused.v1", {}).id


def read(database: Database, org_id: str, seq: int = 0) -> list[Event]:
    with database.read() as db:
        return events.after(db, org_id, seq, scope=None, limit=1000)


def test_one_that_was_made_first_and_committed_last_is_the_last(
    database: Database, org_id: str
) -> None:
    """On SQLite nobody else can write meanwhile; the same holds for what was made before it."""
    with database.write() as db:
        first = events.append(db, org_id, "instance.paused.v1", {})
        db.flush()
        assert read(database, org_id) == []
        if database.dialect == "postgresql":
            second = append(database, org_id)
    if database.dialect == "sqlite":
        second = append(database, org_id)
        assert [one.id for one in read(database, org_id)] == [first.id, second]
    else:
        assert [one.id for one in read(database, org_id)] == [second, first.id]
    assert [one.seq for one in read(database, org_id)] == [1, 2]


def test_whoever_reads_while_others_write_misses_none(database: Database, org_id: str) -> None:
    each, writers = 25, 4
    threads = [
        threading.Thread(target=lambda: [append(database, org_id) for _ in range(each)])
        for _ in range(writers)
    ]
    for thread in threads:
        thread.start()
    found: list[int] = []
    while any(thread.is_alive() for thread in threads) or len(found) < each * writers:
        found += [one.seq for one in read(database, org_id, found[-1] if found else 0)]
    for thread in threads:
        thread.join()
    assert found == list(range(1, each * writers + 1))


def test_several_of_one_transaction_are_in_their_order_and_none_of_one_that_failed(
    database: Database, org_id: str
) -> None:
    with database.write() as db:
        events.append(db, org_id, "instance.paused.v1", {})
        db.rollback()
    with database.write() as db:
        made = [events.append(db, org_id, "instance.paused.v1", {}).id for _ in range(3)]
    assert [(one.seq, one.id) for one in read(database, org_id)] == list(enumerate(made, 1))


def test_a_position_is_that_of_the_organizations_own_event(database: Database, org_id: str) -> None:
    with database.write() as db:
        other = tenants.make(db).org_id
    theirs, ours = append(database, other), append(database, org_id)
    with database.read() as db:
        assert events.position(db, org_id, ours) == 1
        assert events.position(db, org_id, theirs) is None
        assert events.position(db, org_id, events.FIRST) == 0
        assert events.newest(db, org_id) == (1, ours)
        assert events.counts(db, [org_id, "org_none"]) == {org_id: 1}


def test_a_place_is_good_until_an_event_after_it_is_kept_no_more(
    database: Database, org_id: str
) -> None:
    made = [append(database, org_id) for _ in range(3)]
    with database.read() as db:
        assert events.place_after(0) == events.FIRST
        assert [events.position(db, org_id, events.place_after(seq)) for seq in range(5)] == [
            *(0, 1, 2, 3),
            None,
        ]
        assert events.position(db, org_id, "evt_0000000000ZZZZZZZZZZZZZZZZ") is None
        assert events.position(db, "org_none", events.place_after(1)) is None
    with database.write() as db:
        db.execute(delete(Event).where(Event.id == made[0]))
    with database.read() as db:
        assert events.position(db, org_id, events.place_after(1)) == 1
    with database.write() as db:
        db.execute(delete(Event))
    with database.read() as db:
        assert events.position(db, org_id, made[2]) is None
        assert events.position(db, org_id, events.place_after(2)) is None
        assert events.position(db, org_id, events.place_after(3)) == 3


def test_events_are_those_of_one_instance_or_of_all(database: Database, org_id: str) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        one, other = tenants.instance(db, tenant), tenants.instance(db, tenant)
        for instance in (one, other):
            events.append(db, tenant.org_id, "instance.paused.v1", {"n": 1}, instance.id)
        events.append(db, tenant.org_id, "org.closed.v1", {})
        events.append(db, org_id, "org.closed.v1", {})

    def found(instance_id: str | None, seq: int = 0, limit: int = 9) -> list[str | None]:
        with database.read() as db:
            rows = events.after(
                db, tenant.org_id, seq, scope=None, limit=limit, instance_id=instance_id
            )
            return [row.instance_id for row in rows]

    assert found(None) == [one.id, other.id, None]
    assert found(None, limit=2) == [one.id, other.id]
    assert found(None, seq=1) == [other.id, None]
    assert found(other.id) == [other.id]
    assert found(other.id, seq=2) == []
    with database.read() as db:
        assert events.counts(db, [tenant.org_id, org_id]) == {tenant.org_id: 3, org_id: 1}
        seq, event_id = events.newest(db, tenant.org_id)
        assert seq == events.position(db, tenant.org_id, event_id) == 3
        assert events.position(db, org_id, event_id) is None
        assert events.position(db, org_id, events.FIRST) == 0
        assert events.newest(db, "org_none") == (0, events.FIRST)


def test_who_sees_some_teams_sees_what_happens_to_their_instances(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        db.add(Team(id="team_two", org_id=tenant.org_id, name="Two", slug="two"))
        db.flush()
        everyones = tenants.instance(db, tenant)
        others = tenants.instance(db, tenant, team_id="team_two")
        for instance_id in (everyones.id, others.id, None):
            events.append(db, tenant.org_id, "instance.paused.v1", {}, instance_id)

    def found(*of: str) -> list[str | None]:
        with database.read() as db:
            rows = events.after(db, tenant.org_id, 0, scope=Scope(frozenset(of)), limit=9)
            return [row.instance_id for row in rows]

    assert found() == []
    assert found("team_two") == [others.id]
    assert found("team_two", teams.everyone_of(tenant.org_id)) == [everyones.id, others.id]


def test_events_of_several_organizations_are_written_as_they_were_told(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        instance = tenants.instance(db, tenant)
        for number in range(2):
            events.append(db, tenant.org_id, "instance.paused.v1", {"n": number}, instance.id)
            events.append(db, other.org_id, "org.closed.v1", {"n": number})
    with database.write() as db:
        events.append(db, tenant.org_id, "org.closed.v1", {})
        # What the transaction changes besides is written before the numbers are taken.
        project = projects.create(db, tenant.org_id, name="late", slug="late")
    told = [
        (each.seq, each.type, each.data, each.instance_id) for each in read(database, other.org_id)
    ]
    assert told == [(1, "org.closed.v1", {"n": 0}, None), (2, "org.closed.v1", {"n": 1}, None)]
    told = [
        (each.seq, each.type, each.data, each.instance_id) for each in read(database, tenant.org_id)
    ]
    assert told == [
        (1, "instance.paused.v1", {"n": 0}, instance.id),
        (2, "instance.paused.v1", {"n": 1}, instance.id),
        (3, "org.closed.v1", {}, None),
    ]
    with database.read() as db:
        assert projects.fetch(db, tenant.org_id, project.id).name == "late"
        seen = db.scalars(select(Event.time).where(Event.org_id == tenant.org_id)).all()
        assert all(abs(at - database.now(db)) < timedelta(minutes=1) for at in seen)


def test_the_oldest_are_forgotten_first_and_so_many_at_once(
    database: Database, org_id: str
) -> None:
    made = [append(database, org_id) for _ in range(3)]
    with database.write() as db:
        now = database.now(db)
        assert events.forget_old(db, now - timedelta(minutes=1), 9) == 0
        assert events.forget_old(db, now + timedelta(minutes=1), 2) == 2
    assert [one.id for one in read(database, org_id)] == made[2:]
