"""Invites as records: what became of one, and which are pending in which organization."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from storage import identifiers, tenancy
from storage.access import invites, users
from storage.access.invites import Invite
from storage.database import Database
from storage.errors import RecordNotFound

AT: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)
TICK: Final = timedelta(milliseconds=1)


def invite(db: Session, org_id: str, **values: Any) -> Invite:
    """By a user of its own, unless one is given."""
    if "inviter_id" not in values:
        email = f"{identifiers.new('').lower()}@example.org"
        values["inviter_id"] = users.create(db, email=email, name="Inviter").id
    chosen = {"expires_at": AT, "email": "ada@example.org", "role": "member", **values}
    return invites.create(
        *(db, org_id), token_hash=identifiers.new(""), invited_by=chosen["inviter_id"], **chosen
    )


def test_what_became_of_an_invite() -> None:
    pending = Invite(expires_at=AT)
    assert (pending.status(AT - TICK), pending.status(AT)) == ("pending", "expired")
    used, revoked = Invite(expires_at=AT), Invite(expires_at=AT)
    used.accept("usr_1", AT - TICK)
    revoked.revoke(AT - TICK)
    assert (used.accepted_by, used.accepted_at) == ("usr_1", AT - TICK)
    assert revoked.revoked_at == AT - TICK
    assert (used.status(AT), revoked.status(AT)) == ("used", "revoked")


def test_what_is_sent_is_kept(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        user = users.create(db, email="inviter@example.org", name="Inviter")
        told = {"role": "admin", "token_hash": "hash", "invited_by": "key_1", "expires_at": AT}
        told["inviter_id"] = user.id
        made = invites.create(
            *(db, tenant.org_id),
            email="Ada@Example.org",
            role="admin",
            token_hash="hash",
            invited_by="key_1",
            inviter_id=user.id,
            expires_at=AT,
        )
        assert made.id.startswith("inv_")
    with database.read() as db:
        found = invites.fetch(db, tenant.org_id, made.id, AT - TICK)
        assert {name: getattr(found, name) for name in told} == told
        assert (found.org_id, found.email) == (tenant.org_id, "ada@example.org")


def test_a_pending_one_is_fetched_from_its_organization(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        made, revoked = invite(db, tenant.org_id), invite(db, tenant.org_id)
        revoked.revoke(AT - TICK)
        before = AT - TICK
        assert invites.fetch(db, tenant.org_id, made.id, before) is made
        refused = [
            (other.org_id, made.id, before),
            (tenant.org_id, "inv_none", before),
            (tenant.org_id, made.id, AT),
            (tenant.org_id, revoked.id, before),
        ]
        for org_id, invite_id, now in refused:
            with pytest.raises(RecordNotFound, match=r"^invite not found$"):
                invites.fetch(db, org_id, invite_id, now)
        # Whoever holds it decides by what it is, and not by what it was.
        db.flush()
        behind = update(Invite).values(role="owner")
        db.execute(behind, execution_options={"synchronize_session": False})
        assert invites.fetch(db, tenant.org_id, made.id, before).role == "member"
        assert invites.fetch(db, tenant.org_id, made.id, before, lock=True).role == "owner"


def test_a_token_takes_the_session_into_its_organization(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        made = invite(db, tenant.org_id)
        for each in (tenant, other):
            invite(db, each.org_id)
    with database.write() as db:
        tenancy.restrict(db, None)
        with pytest.raises(RecordNotFound, match=r"^invite not found$"):
            invites.take(db, "unknown")
        assert tenancy.is_for_none(db)
        assert invites.take(db, made.token_hash).id == made.id
        assert not tenancy.is_for_none(db)
        with pytest.raises(RecordNotFound):
            invites.fetch(db, other.org_id, made.id, AT - TICK)


def test_pending_ones_are_listed_and_counted(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        made = [invite(db, tenant.org_id) for _ in range(2)]
        made.append(invite(db, tenant.org_id, email="bob@example.org"))
        invite(db, tenant.org_id).revoke(AT)
        invite(db, tenant.org_id).accept("usr_1", AT)
        invite(db, tenant.org_id, expires_at=AT - TICK)
        invite(db, other.org_id)
        db.flush()
        org_id, now = tenant.org_id, AT - TICK
        first = invites.page(db, org_id, now=now, limit=2, after=None)
        rest = invites.page(db, org_id, now=now, limit=2, after=first.next_after)
        assert [*first.items, *rest.items] == made[::-1]
        assert invites.count_pending(db, org_id, now) == 3
        assert invites.count_pending(db, org_id, now, "ADA@example.org") == 2
        assert invites.count_pending(db, org_id, now, "eve@example.org") == 0
        assert invites.count_pending(db, other.org_id, now) == 1
        assert invites.count_pending(db, org_id, AT) == 0
        assert invites.count_pending(db, org_id, now - TICK) == 4


def test_those_sent_since_are_counted_and_the_oldest_forgotten(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        made = [invite(db, tenant.org_id) for _ in range(3)]
        invite(db, other.org_id)
        now = database.now(db)
        for hours, each in zip((3, 2, 1), made, strict=True):
            each.created_at = now - timedelta(hours=hours)
        made[0].revoke(AT)
        db.flush()
        since = made[1].created_at
        assert invites.count_since(db, tenant.org_id, since) == 2
        assert invites.count_since(db, tenant.org_id, since + TICK) == 1
        assert invites.count_since(db, tenant.org_id, made[0].created_at) == 3
        assert invites.forget_old(db, now - timedelta(minutes=1), 9) == 0
        assert invites.forget_old(db, now + timedelta(minutes=1), 2) == 2
        left = invites.page(db, tenant.org_id, now=AT - TICK, limit=9, after=None)
        assert left.items == [made[2]]


def test_what_a_user_sent_is_revoked_while_it_is_pending(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        mine = invite(db, tenant.org_id)
        by_me = {"inviter_id": mine.inviter_id}
        used, old = (invite(db, tenant.org_id, **by_me) for _ in range(2))
        used.accept("usr_1", AT - TICK)
        old.expires_at = AT - 2 * TICK
        other = invite(db, tenant.org_id)
        db.flush()
        assert invites.revoke_of(db, tenant.org_id, mine.inviter_id, AT - TICK) == 1
        assert mine.revoked_at == AT - TICK
        assert (used.revoked_at, old.revoked_at, other.revoked_at) == (None, None, None)
        assert not invites.is_pending(db, tenant.org_id, mine.id, AT - TICK)
        assert invites.is_pending(db, tenant.org_id, other.id, AT - TICK)
