"""What ends at a moment has ended then: sessions, keys and closed organizations, to the moment."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from storage.access import api_keys, memberships, organizations, sessions, users
from storage.access.sessions import LIVE_MAX, UserSession
from storage.access.users import User
from storage.database import Database
from storage.errors import RecordNotFound

SOON = timedelta(hours=1)
TICK = timedelta(milliseconds=1)


def user(db: Session, email: str = "ada@example.org") -> User:
    return users.create(db, email=email, name="Ada")


def session(
    db: Session, of: User, expires_at: datetime, ip: str | None = None, *, mfa: bool = False
) -> UserSession:
    number = len(sessions.page(db, of.id, now=expires_at - SOON, limit=999, after=None).items)
    made = UserSession(
        id=f"ses_{of.id}_{number:03}",
        user_id=of.id,
        token_hash=f"{of.id} {number}",
        prefix="ms_",
        expires_at=expires_at,
        ip=ip,
        mfa_at=expires_at if mfa else None,
    )
    db.add(made)
    db.flush()
    return made


def live(db: Session, of: User, now: datetime) -> list[str]:
    page = sessions.page(db, of.id, now=now, limit=999, after=None)
    return [each.id for each in page.items]


def test_a_session_lives_until_the_moment_at_which_it_expires(database: Database) -> None:
    with database.write() as db:
        ends = database.now(db) + SOON
        ada, bob = user(db), user(db, "bob@example.org")
        one = session(db, ada, ends, "192.0.2.1")
        session(db, ada, ends)
        session(db, bob, ends, "192.0.2.2")
        for now, there in ((ends - TICK, True), (ends, False)):
            assert one.is_live(now) == there
            assert (one.id in live(db, ada, now)) == there
            assert sessions.addresses(db, ada.id, now) == (["192.0.2.1"] if there else [])
        page = sessions.page(db, ada.id, now=ends - TICK, limit=1, after=None)
        rest = sessions.page(db, ada.id, now=ends - TICK, limit=1, after=page.next_after)
        assert rest.items == [one]
        assert sessions.fetch(db, ada.id, one.id, ends - TICK) is one
        with pytest.raises(RecordNotFound, match=r"^session not found$"):
            sessions.fetch(db, ada.id, one.id, ends)
        assert sessions.forget_ended(db, ends, 10) == 0
        assert [sessions.forget_ended(db, ends + TICK, 2) for _ in range(3)] == [2, 1, 0]


def test_addresses_of_sessions_are_told_once_and_so_many_at_most(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_ADDRESSES_MAX", 3)
    with database.write() as db:
        now = database.now(db)
        ada = user(db)
        for last in (1, 1, 2):
            session(db, ada, now + SOON, f"192.0.2.{last}")
        assert sorted(sessions.addresses(db, ada.id, now)) == ["192.0.2.1", "192.0.2.2"]
        for last in (3, 4):
            session(db, ada, now + SOON, f"192.0.2.{last}")
        assert len(sessions.addresses(db, ada.id, now)) == 3


def test_others_of_the_same_user_end_and_those_of_nobody_else(database: Database) -> None:
    with database.write() as db:
        now = database.now(db)
        ada, bob = user(db), user(db, "bob@example.org")
        kept, *_ = [session(db, ada, now + SOON) for _ in range(3)]
        his = session(db, bob, now + SOON)
        assert sessions.revoke_others(db, kept, now) == 2
        assert sessions.revoke_others(db, kept, now) == 0
    with database.read() as db:
        assert live(db, ada, now) == [kept.id]
        assert live(db, bob, now) == [his.id]


def test_the_password_alone_ends_no_session_that_has_passed_the_second_factor(
    database: Database,
) -> None:
    with database.write() as db:
        now = database.now(db)
        ada = user(db)
        passed = [session(db, ada, now + SOON, mfa=True) for _ in range(LIVE_MAX)]
        for _ in range(2):
            newest = session(db, ada, now + SOON)
            sessions.revoke_surplus(db, newest, now)
    with database.write() as db:
        assert set(live(db, ada, now)) == {newest.id, *(each.id for each in passed)}
        newest = sessions.fetch(db, ada.id, newest.id, now)
        newest.mfa_at = now
        sessions.revoke_surplus(db, newest, now)
    with database.read() as db:
        assert set(live(db, ada, now)) == {newest.id, *(each.id for each in passed[1:])}


def test_the_oldest_sessions_without_a_second_factor_end_first(database: Database) -> None:
    with database.write() as db:
        now = database.now(db)
        ada = user(db)
        passed = session(db, ada, now + SOON, mfa=True)
        his = session(db, user(db, "bob@example.org"), now + SOON, mfa=True)
        plain = [session(db, ada, now + SOON) for _ in range(LIVE_MAX - 1)]
        sessions.revoke_surplus(db, plain[-1], now)
        assert len(live(db, ada, now)) == LIVE_MAX
        newest = session(db, ada, now + SOON)
        sessions.revoke_surplus(db, newest, now)
    with database.write() as db:
        left = live(db, ada, now)
        assert len(left) == LIVE_MAX
        assert {passed.id, newest.id, plain[1].id} <= set(left)
        assert plain[0].id not in left
        sessions.forget_second_factor(db, ada.id)
    with database.read() as db:
        assert db.get_one(UserSession, passed.id).mfa_at is None
        assert db.get_one(UserSession, his.id).mfa_at is not None


def test_a_key_is_good_until_the_moment_at_which_it_expires(database: Database) -> None:
    with database.write() as db:
        ends = database.now(db) + SOON
        tenant, other = tenants.make(db), tenants.make(db)
        key = tenants.key(db, tenant.org_id, user(db).id, expires_at=ends)
        for now, there in ((ends - TICK, True), (ends, False)):
            assert key.is_live(now) == there
            page = api_keys.page(db, tenant.org_id, now=now, limit=9, after=None)
            assert page.items == ([key] if there else [])
            assert api_keys.page(db, other.org_id, now=now, limit=9, after=None).items == []
            page = api_keys.page(db, tenant.org_id, now=now, limit=9, after=key.id)
            assert page.items == []
        key.revoke(ends)
        key.revoke(ends + SOON)
        assert key.revoked_at == ends
        db.flush()
        with pytest.raises(RecordNotFound, match=r"^api key not found$"):
            api_keys.fetch(db, tenant.org_id, key.id)


def test_keys_created_with_a_key_end_with_it_and_no_others(database: Database) -> None:
    with database.write() as db:
        now = database.now(db)
        tenant, other = tenants.make(db), tenants.make(db)
        owner = user(db).id
        first = tenants.key(db, tenant.org_id, owner)
        child = tenants.key(db, tenant.org_id, owner, created_by_key_id=first.id, revoked_at=now)
        grandchild = tenants.key(db, tenant.org_id, owner, created_by_key_id=child.id)
        second = tenants.key(db, tenant.org_id, owner, created_by_key_id=first.id)
        apart = tenants.key(db, tenant.org_id, owner)
        beside = tenants.key(db, tenant.org_id, owner, created_by_key_id=apart.id)
        foreign = tenants.key(db, other.org_id, owner, created_by_key_id=first.id)
        every = (first, child, grandchild, second, apart, beside, foreign)
        assert api_keys.revoke_created_with(db, first, now) == 2
        for key in every:
            db.refresh(key)
        assert [key for key in every if key.revoked_at] == [child, grandchild, second]
        assert api_keys.revoke_all(db, tenant.org_id, now) == 3
        for key in every:
            db.refresh(key)
        assert [key.revoked_at for key in every[:-1]] == [now] * 6
        assert foreign.revoked_at is None


def test_what_a_person_owns_is_counted_while_it_is_open_or_has_data(database: Database) -> None:
    with database.write() as db:
        now = database.now(db)
        ada = user(db)
        owned, left, joined = tenants.make(db), tenants.make(db), tenants.make(db)
        for tenant, role in ((owned, "owner"), (left, "owner"), (joined, "admin")):
            memberships.create(db, tenant.org_id, ada.id, role)
        assert organizations.count_owned(db, ada.id) == 2
        assert organizations.count_owned(db, ada.id, "free") == 2
        assert organizations.count_owned(db, ada.id, "team") == 0
        data = tenants.instance(db, left, status="deleted", desired_status="deleted")
        organizations.fetch(db, left.org_id).close(now)
        db.flush()
        assert organizations.count_owned(db, ada.id) == 2
        tenants.instance(db, joined)
        data.status = data.desired_status = "erased"
        db.flush()
        assert organizations.count_owned(db, ada.id) == 1
        assert organizations.count_owned(db, ada.id, "free") == 1
        assert organizations.count_closed(db, ada.id, now) == 1
        assert organizations.count_closed(db, ada.id, now + TICK) == 0
        assert organizations.count_closed(db, joined.org_id, now) == 0
