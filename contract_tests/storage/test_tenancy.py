"""Whatever a request's session is asked, it is of one organization, or it is refused."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import delete, exists, func, insert, select, text, update
from sqlalchemy.orm import Session, aliased

from storage import tenancy
from storage.access import organizations, projects
from storage.access.organizations import Organization
from storage.access.projects import Project
from storage.columns import Owned, Record
from storage.database import Database
from storage.tenancy import TenancyBroken

NOBODYS = {
    "AuditPublication": "a record of the installation's log, with heads of many organizations",
    "Cell": "a machine, which organizations share",
    "DeviceLogin": "a program's, and nobody's until a person lets it in",
    "MeteredHour": "says that an hour was metered, of everybody",
    "InvoiceNumber": "counts the invoices of an issuer, for all organizations",
    "BillingCheck": "what was found in a month, of all organizations together",
    "InvoiceRun": "says how far the invoices of a month are, for all organizations",
    "OidcIssuer": "publishes keys, which hold for whoever trusts it",
    "PaymentNotice": "says only that an event of the payment provider was taken",
    "RightChange": "names whose rights, a person's or an organization's",
    "RateWindow": "counts requests of whoever is not known yet",
    "Replay": "its key names whose it is, an address before sign-in",
    "User": "a person, who may belong to many organizations",
    "AccountToken": "a person's",
    "Passkey": "a person's",
    "RecoveryCode": "a person's",
    "UsedChallenge": "says only that it was used",
    "UserSession": "a person's",
    "Work": "its arguments name the organization, and workers do all of it",
}


def test_each_record_is_owned_or_says_why_not() -> None:
    mapped = {mapper.class_ for mapper in Record.registry.mappers}
    owned = {each for each in mapped if issubclass(each, Owned)}
    assert {each.__name__ for each in mapped - owned} == set(NOBODYS)
    for each in mapped - owned:
        assert "org_id" not in each.__table__.columns, each


@pytest.fixture
def mine(database: Database) -> Iterator[tuple[Session, Project, Project]]:
    """A session held to the organization of the first project, and the two projects."""
    with database.write() as db:
        own, other = (
            projects.create(
                db, organizations.create(db, name=name, slug=name).id, name=name, slug=name
            )
            for name in ("own", "other")
        )
    with database.write() as db:
        tenancy.restrict(db, own.org_id)
        yield db, own, other
        db.rollback()


QUERIES: dict[str, Callable[[], Any]] = {
    "records": lambda: select(Project.id),
    "alias": lambda: select(aliased(Project).id),
    "where": lambda: select(Project.id).where(Project.name != ""),
    "or": lambda: select(Project.id).where((Project.name == "other") | (Project.name != "")),
    "subquery": lambda: select(select(Project.id).subquery().c.id),
    "in": lambda: select(Project.id).where(Project.id.in_(select(Project.id))),
    "join": lambda: select(Project.id).join(Organization, Organization.id == Project.org_id),
    "outer": lambda: select(Project.id).outerjoin(Organization, Organization.name == "own"),
    "union": lambda: select(Project.id).union(select(Project.id).where(Project.name == "other")),
    "cte": lambda: select(select(Project.id).cte().c.id),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_without_its_organization_finds_its_own_alone(
    mine: tuple[Session, Project, Project], name: str
) -> None:
    db, own, _ = mine
    try:
        found = set(db.scalars(QUERIES[name]()))
    except TenancyBroken:
        return
    assert found == {own.id}


def test_what_is_counted_asked_for_and_fetched_is_its_own(
    mine: tuple[Session, Project, Project],
) -> None:
    db, own, other = mine
    assert db.scalar(select(func.count()).select_from(Project)) == 1
    assert db.get(Project, other.id) is None
    assert db.get(Project, own.id) is not None
    assert db.get(Organization, other.org_id) is None
    there = select(Project.id).where(exists().where(Organization.id == other.org_id))
    assert db.scalars(there).all() == []
    with tenancy.across(db, "a test"):
        assert db.get(Project, other.id) is not None
    assert projects.page(db, own.org_id, scope=None, limit=10, after=None).items == [
        db.get(Project, own.id)
    ]


def test_what_is_changed_at_once_is_its_own(mine: tuple[Session, Project, Project]) -> None:
    db, own, other = mine
    changed = update(Project).values(name="changed").returning(Project.id)
    assert db.scalars(changed).all() == [own.id]
    assert db.scalars(delete(Project).where(Project.id == other.id).returning(Project)).all() == []


def test_nothing_is_made_for_another(mine: tuple[Session, Project, Project]) -> None:
    db, _, other = mine
    with pytest.raises(TenancyBroken, match="a Project of"):
        projects.create(db, other.org_id, name="theirs", slug="theirs")


def test_nothing_of_another_is_changed(mine: tuple[Session, Project, Project]) -> None:
    db, _, other = mine
    with tenancy.across(db, "a test"):
        theirs = db.get(Project, other.id)
    assert theirs is not None
    theirs.name = "changed"
    with pytest.raises(TenancyBroken, match="a Project of"):
        db.flush()


REFUSED: dict[str, Callable[[], Any]] = {
    "text": lambda: text("SELECT 1"),
    "core": lambda: select(Project.__table__.c.id),
    "core update": lambda: update(Project.__table__).values(name="x"),  # type: ignore[arg-type]
    "core delete": lambda: delete(Project.__table__),  # type: ignore[arg-type]
    "insert": lambda: insert(Project).values(id="proj_1", org_id="org_1", name="x", slug="x"),
    "exists": lambda: select(exists().where(Project.__table__.c.name == "x")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_held_is_refused(mine: tuple[Session, Project, Project], name: str) -> None:
    db, _, _ = mine
    with pytest.raises(TenancyBroken):
        db.execute(REFUSED[name]())


def test_a_refusal_says_of_what_and_why(mine: tuple[Session, Project, Project]) -> None:
    db, _, _ = mine
    with pytest.raises(TenancyBroken) as refused:
        db.execute(select(Project.__table__.c.id))
    assert str(refused.value) == (
        "a statement on projects cannot be held to one: it is no query of records"
    )


@pytest.mark.parametrize("name", QUERIES)
def test_a_request_of_no_organization_touches_none(database: Database, name: str) -> None:
    with database.read() as db:
        tenancy.restrict(db, None)
        with pytest.raises(TenancyBroken, match="has no organization"):
            db.scalars(QUERIES[name]())
        assert database.now(db)


def test_whoever_makes_an_organization_goes_on_within_it(database: Database) -> None:
    with database.write() as db:
        tenancy.restrict(db, None)
        made = organizations.create(db, name="made", slug="made")
        projects.create(db, made.id, name="first", slug="first")
        assert organizations.is_slug_taken(db, "made")
        with pytest.raises(TenancyBroken):
            organizations.create(db, name="second", slug="second")
        db.rollback()
