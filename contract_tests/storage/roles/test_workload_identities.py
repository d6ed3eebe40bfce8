"""Workload identities and the keys that jobs have by them, on each kind of database."""

import threading
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from contract_tests.storage.query_plans import query_plans
from storage import identifiers, tenancy
from storage.access import api_keys
from storage.access.api_keys import ApiKey
from storage.database import Database
from storage.roles import oidc_issuers, service_accounts, workload_identities
from storage.roles.service_accounts import ServiceAccount
from storage.roles.workload_identities import WorkloadIdentity

ISSUER = "https://ci.example.com"


def account(db: Session, org_id: str, name: str = "ci") -> ServiceAccount:
    return service_accounts.create(db, org_id, name=name, role="member", created_by="usr_x")


def trust(
    db: Session, of: ServiceAccount, subject: str = "a/b", key_id: str | None = None
) -> WorkloadIdentity:
    about = {"name": "jobs", "issuer": ISSUER, "audience": "here", "subject": subject}
    return workload_identities.create(db, of, **about, created_by="usr_x", created_by_key_id=key_id)


def key(
    db: Session, of: ServiceAccount, expires_at: datetime | None, by: str | None, **values: object
) -> ApiKey:
    id_ = identifiers.new("key_")
    made = ApiKey(
        id=id_,
        org_id=of.org_id,
        name="job",
        role="member",
        created_by=of.id,
        service_account_id=of.id,
        workload_identity_id=by,
        prefix="mk_live_",
        token_hash=id_,
        expires_at=expires_at,
        **values,
    )
    db.add(made)
    db.flush()
    return made


def test_one_is_usable_as_long_as_the_key_that_made_it(database: Database) -> None:
    with database.write() as db:
        own = account(db, tenants.make(db).org_id)
        now = database.now(db)
        soon = now + timedelta(minutes=1)
        makers = {
            "live": key(db, own, None, None),
            "later": key(db, own, soon, None),
            "expired": key(db, own, now, None),
            "revoked": key(db, own, None, None, revoked_at=now),
            "suspended": key(db, own, None, None, suspended_at=now),
        }
        made = {name: trust(db, own, name, maker.id) for name, maker in makers.items()}
        made |= {"by hand": trust(db, own, "by hand"), "of none": trust(db, own, "of none", "key_")}
        found = workload_identities.usable(db, own, ISSUER, "here", now)
        assert {each.subject for each in found} == {"live", "later", "by hand"}
        gone = workload_identities.ended(db, made.values(), now)
        assert gone == {made[name].id for name in ("expired", "revoked", "suspended", "of none")}
        assert workload_identities.ended(db, [made["by hand"]], now) == set()
        for issuer, audience in ((ISSUER, "elsewhere"), ("https://gitlab.com", "here")):
            assert workload_identities.usable(db, own, issuer, audience, now) == []


def test_those_of_another_account_are_its_own(database: Database) -> None:
    with database.write() as db:
        org_id = tenants.make(db).org_id
        own, other = account(db, org_id), account(db, org_id, "other")
        trust(db, own), trust(db, own, "c/d"), trust(db, other)
        assert [workload_identities.count(db, one) for one in (own, other)] == [2, 1]
        page = workload_identities.page(db, own, limit=9, after=None)
        assert [one.subject for one in page.items] == ["c/d", "a/b"]
        assert workload_identities.delete_of(db, own) == 2
        assert [workload_identities.count(db, one) for one in (own, other)] == [0, 1]


def test_who_enters_an_account_is_held_to_its_organization(database: Database) -> None:
    with database.write() as db:
        mine, theirs = tenants.make(db), tenants.make(db)
        own, other = account(db, mine.org_id), account(db, theirs.org_id)
        trust(db, own), trust(db, other)
    with database.write() as db:
        tenancy.restrict(db, None)
        assert workload_identities.enter(db, "sa_nobody") is None
        entered = workload_identities.enter(db, own.id)
        assert entered is not None
        assert (entered.id, entered.org_id) == (own.id, mine.org_id)
        assert workload_identities.count(db, other) == 0
        assert workload_identities.count(db, own) == 1


def test_keys_of_jobs_count_for_themselves(database: Database) -> None:
    with database.write() as db:
        org_id = tenants.make(db).org_id
        own, other = account(db, org_id), account(db, org_id, "other")
        now = database.now(db)
        hour = now + timedelta(hours=1)
        by, by_other = trust(db, own), trust(db, other)
        key(db, own, hour, by.id), key(db, own, hour, by.id)
        key(db, own, now, by.id), key(db, own, hour, by.id, revoked_at=now)
        key(db, other, hour, by_other.id)
        key(db, own, None, None)
        assert api_keys.count_of_jobs(db, org_id, own.id, now=now) == 2
        assert api_keys.count_of_jobs(db, org_id, other.id, now=now) == 1
        assert api_keys.count(db, org_id, now=now) == 1
        assert len(api_keys.page(db, org_id, now=now, limit=9, after=None).items) == 4


def test_what_jobs_have_by_one_is_revoked_with_all_that_they_made(database: Database) -> None:
    with database.write() as db:
        own = account(db, tenants.make(db).org_id)
        hour = database.now(db) + timedelta(hours=1)
        by, another = trust(db, own), trust(db, own, "c/d")
        of_job = key(db, own, hour, by.id)
        child = key(db, own, hour, None, created_by_key_id=of_job.id)
        grandchild = key(db, own, hour, None, created_by_key_id=child.id)
        kept = [key(db, own, hour, another.id), key(db, own, None, None)]
        now = database.now(db)
        assert api_keys.revoke_of_jobs(db, own.org_id, by.id, now) == 3
        assert api_keys.revoke_of_jobs(db, own.org_id, by.id, now) == 0
        for one in (of_job, child, grandchild, *kept):
            db.refresh(one)
        assert [one.revoked_at for one in (of_job, child, grandchild)] == [now] * 3
        assert [one.revoked_at for one in kept] == [None, None]


def test_keys_of_jobs_are_forgotten_unless_they_were_revoked(database: Database) -> None:
    with database.write() as db:
        own = account(db, tenants.make(db).org_id)
        now, by = database.now(db), trust(db, own).id
        old = now - timedelta(days=31)
        key(db, own, old, by), key(db, own, old, by)
        kept = {
            key(db, own, old, by, revoked_at=old).id,
            key(db, own, old, None).id,
            key(db, own, now, by).id,
        }
        before = now - timedelta(days=30)
        assert [api_keys.forget_of_jobs(db, before, 1) for _ in range(3)] == [1, 1, 0]
        assert {one.id for one in db.query(ApiKey) if one.org_id == own.org_id} == kept


def test_an_issuer_is_there_once_whoever_expects_it(database: Database) -> None:
    def expect() -> None:
        with database.write() as db:
            oidc_issuers.expect(db, ISSUER)

    threads = [threading.Thread(target=expect) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    with database.write() as db:
        assert oidc_issuers.trusted(db) == []
        own = account(db, tenants.make(db).org_id)
        trust(db, own), trust(db, own, "c/d")
        assert oidc_issuers.trusted(db) == [ISSUER]
        assert oidc_issuers.read_at(db, {ISSUER, "https://other"}) == {ISSUER: None}


def test_keys_of_an_issuer_stay_when_it_fails(database: Database) -> None:
    with database.write() as db:
        now = database.now(db)
        oidc_issuers.hold(db, ISSUER).became_known([{"kid": "a"}], now)
    later = now + timedelta(minutes=5)
    with database.write() as db:
        oidc_issuers.hold(db, ISSUER).became_unreachable("it is down", later)
    with database.read() as db:
        found = oidc_issuers.find(db, ISSUER)
        assert found is not None
        assert (found.keys, found.read_at) == ([{"kid": "a"}], now)
        assert (found.tried_at, found.failed_reason) == (later, "it is down")


def test_what_each_exchange_asks_is_found_by_an_index(database: Database) -> None:
    with database.write() as db:
        own = account(db, tenants.make(db).org_id)
        now = database.now(db)
        with query_plans(db) as plans:
            workload_identities.usable(db, own, ISSUER, "here", now)
            api_keys.count_of_jobs(db, own.org_id, own.id, now=now)
            oidc_issuers.trusted(db)
        read_whole = [step for step in plans if "SCAN" in step]
        assert not [step for step in read_whole if "oidc_issuers" not in step]
        if database.engine.dialect.name == "sqlite":
            assert any("workload_identities" in step for step in plans)
            assert any("ix_api_keys_service_account_id_expires_at" in step for step in plans)
