"""Prepared queries go around the session, and nothing that holds of its statements is lost."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import bindparam, event, func, insert, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from contract_tests.storage.test_tenancy import QUERIES
from storage import lookups, tenancy
from storage.access import organizations, projects
from storage.access.organizations import Organization
from storage.access.projects import Project
from storage.access.users import User
from storage.columns import DatabaseClock, is_among
from storage.database import Database
from storage.errors import StateConflict, StorageUnavailable
from storage.events import audit
from storage.events.audit import AuditEntry
from storage.instances import instances
from storage.instances.instances import Instance
from storage.prepared import Insertion, Prepared, RecordInsertion
from storage.tenancy import TenancyBroken

ALL = Prepared(select(Project).order_by(Project.id))
OF_NAME = Prepared(select(Project.name).where(Project.name == bindparam("name")))


@pytest.fixture
def two(database: Database) -> tuple[str, str]:
    """The organizations of the projects `one` and `two`."""
    with database.write() as db:
        made = [organizations.create(db, name=each, slug=each) for each in ("one", "two")]
        for each in made:
            projects.create(db, each.id, name=each.name, slug=each.slug)
        return made[0].id, made[1].id


def names(db: Session) -> list[str]:
    return [project.name for (project,) in ALL.rows(db)]


def test_it_finds_what_the_session_may_see(database: Database, two: tuple[str, str]) -> None:
    with database.read() as db:
        assert names(db) == ["one", "two"]
        tenancy.restrict(db, two[0])
        assert names(db) == ["one"]
        assert OF_NAME.rows(db, name="two") == []
        with tenancy.across(db, "a test"):
            assert names(db) == ["one", "two"]
        tenancy.restrict(db, None)
        with pytest.raises(TenancyBroken, match="has no organization"):
            ALL.rows(db)
        assert Prepared(select(DatabaseClock())).one_or_none(db)


@pytest.mark.parametrize("name", sorted(QUERIES.keys() - {"union"}))
def test_whatever_is_prepared_finds_its_own_alone(
    database: Database, two: tuple[str, str], name: str
) -> None:
    with database.read() as db:
        own = projects.first(db, two[0])
        tenancy.restrict(db, two[0])
        try:
            found = Prepared(QUERIES[name]()).rows(db)
        except TenancyBroken:
            return
        assert own is not None
        assert {row[0] for row in found} == {own.id}


def test_what_cannot_be_held_is_refused(database: Database, two: tuple[str, str]) -> None:
    core: Any = Prepared(select(Project.__table__.c.id))
    with database.read() as db:
        tenancy.restrict(db, two[0])
        with pytest.raises(TenancyBroken, match=r"^a prepared query cannot be held to"):
            core.rows(db)


def test_its_records_are_the_sessions(database: Database, two: tuple[str, str]) -> None:
    with database.write() as db:
        first, again = (ALL.rows(db)[0][0] for _ in range(2))
        assert first is again
        assert db.get(Project, first.id) is again
        first.name = "changed"
        assert names(db) == ["changed", "two"], "what is not written yet is seen"
    with database.read() as db:
        assert names(db) == ["changed", "two"]
        ALL.rows(db)[0][0].name = "never"
        with pytest.raises(RuntimeError, match="asked to write"):
            db.flush()


def test_a_record_is_as_the_session_loads_it(database: Database) -> None:
    with database.write() as db:
        made = tenants.instance(db, tenants.make(db)).id
    with database.read() as db:
        prepared = lookups.by_key(db, Instance, made)
        assert prepared is not None
        values = {
            each.key: getattr(prepared, each.key) for each in Instance.__mapper__.column_attrs
        }
    with database.read() as db:
        loaded = db.scalars(select(Instance).where(Instance.id == made)).one()
        assert {name: getattr(loaded, name) for name in values} == values
        assert prepared.created_at.utcoffset() == loaded.created_at.utcoffset()


def test_what_an_outer_join_does_not_find_is_none(database: Database) -> None:
    query = Prepared(
        select(Organization, User, func.count(1))
        .outerjoin(User, User.id == Organization.slug)
        .group_by(Organization.id, User.id)
    )
    with database.write() as db:
        made = organizations.create(db, name="one", slug="one")
        assert query.rows(db) == [(made, None, 1)]


def test_columns_may_come_before_a_record(database: Database, two: tuple[str, str]) -> None:
    query = Prepared(select(Project.name, Project.slug, Project, Project.org_id))
    with database.read() as db:
        own = projects.first(db, two[0])
        assert own is not None
        assert ("one", "one", own, two[0]) in query.rows(db)


@pytest.mark.parametrize("asked", [[], ["two"], ["one", "two", "three"]])
def test_a_list_of_any_length_is_one_parameter(
    database: Database, two: tuple[str, str], asked: list[str]
) -> None:
    assert two
    query = select(Project.name).where(is_among(Project.name, "names")).order_by(Project.name)
    with database.read() as db:
        found = Prepared(query).rows(db, names=asked)
        assert [row.name for row in found] == sorted({*asked} - {"three"})


def test_a_list_of_constants_is_part_of_the_statement(
    database: Database, two: tuple[str, str]
) -> None:
    with database.read() as db:
        made = {project.name: project.created_at for (project,) in ALL.rows(db)}
        asked = [made["one"], made["two"] + timedelta(days=1)]
        found = Prepared(select(Project.created_at).where(Project.created_at.in_(asked))).rows(db)
        assert made["one"] in [at for (at,) in found]
        since = Prepared(select(Project.name).where(Project.created_at >= made["two"]))
        assert "two" in [name for (name,) in since.rows(db)]
        after = made["two"] + timedelta(days=1)
        assert Prepared(select(Project.name).where(Project.created_at > after)).rows(db) == []
        of_two = Prepared(select(Project.name).where(Project.org_id.in_([two[1]])))
        assert [name for (name,) in of_two.rows(db)] == ["two"]


def test_one_that_fails_says_so_as_the_session_does(database: Database) -> None:
    broken = Prepared(select(text("1 / nothing")).where(bindparam("given") == "a secret"))
    with database.read() as db, pytest.raises(DBAPIError) as failed:
        broken.rows(db, given="a secret")
    assert "SELECT 1 / nothing" in str(failed.value)
    assert "a secret" not in str(failed.value)
    assert not failed.value.connection_invalidated
    with database.read() as db:
        assert names(db) == []


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_connection_that_is_lost_is_an_outage_and_then_another(database: Database) -> None:
    end = "SELECT pg_terminate_backend(pg_backend_pid())"
    with pytest.raises(StorageUnavailable), database.read() as db:
        Prepared(select(text(end[7:]))).rows(db)
    with database.read() as db:
        assert names(db) == []


def test_who_listens_to_statements_hears_of_it(database: Database) -> None:
    heard: list[str] = []

    def listen(
        _connection: Any, cursor: Any, statement: str, given: Any, _context: Any, many: bool
    ) -> None:
        assert cursor is not None
        assert not many
        if "projects.name" in statement:
            heard.extend(given.values() if isinstance(given, dict) else given)

    event.listen(database.engine, "before_cursor_execute", listen)
    with database.read() as db:
        OF_NAME.rows(db, name="one")
    event.remove(database.engine, "before_cursor_execute", listen)
    assert heard == ["one"]


def test_what_is_inserted_is_the_organizations_own(
    database: Database, two: tuple[str, str]
) -> None:
    with database.write() as db:
        tenancy.restrict(db, two[0])
        with pytest.raises(TenancyBroken, match="a AuditEntry of"):
            audit.append(db, two[1], "test.done", actor_kind="system")
        audit.append(db, two[0], "test.done", actor_kind="system")
    with database.read() as db:
        found = db.scalars(select(AuditEntry)).one()
        assert (found.org_id, found.actor_id, found.detail) == (two[0], None, {})
        assert found.created_at <= database.now(db)


def test_what_only_reads_inserts_nothing(database: Database, two: tuple[str, str]) -> None:
    with database.read() as db, pytest.raises(RuntimeError, match="asked to write"):
        audit.append(db, two[0], "test.done", actor_kind="system")


def test_what_breaks_a_constraint_is_a_conflict(database: Database) -> None:
    with pytest.raises(StateConflict), database.write() as db:
        audit.append(db, "org_nowhere", "test.done", actor_kind="system")


def test_columns_that_are_not_given_have_their_defaults(database: Database) -> None:
    with database.write() as db:
        made = tenants.make(db)
        Insertion(Organization).write(db, id="org_new", name="new", slug="new")
        with pytest.raises(AssertionError, match="to be given"):
            Insertion(Project).write(db, id="p", org_id=made.org_id, name="n", slug="n")
        found = organizations.fetch(db, "org_new")
        assert (found.plan, found.require_mfa, found.closed_at) == ("free", False, None)


def test_a_record_that_is_added_is_the_sessions(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        template = tenants.instance(db, tenant)
        made = _another(template)
        instances.add(db, made)
        assert made in db
        assert not db.dirty
        written = _values(made)
        made.became_failed("no such image")
    with database.read() as db:
        found = _values(db.get_one(Instance, made.id))
    assert written.keys() == set(Instance.__mapper__.columns.keys())
    changed = {"status": "failed", "status_reason": "no such image"}
    assert {**found, "updated_at": None} == {**written, **changed, "updated_at": None}


def test_records_of_any_kind_are_added_with_what_the_database_gives(database: Database) -> None:
    adding = RecordInsertion(Organization)
    with database.write() as db:
        made = Organization(id="org_new", name="new", slug="new", plan="team")
        adding.add(db, made)
        assert made in db
        assert (made.plan, made.status, made.require_mfa) == ("team", "open", False)
        assert (made.default_region, made.closed_at) == (None, None)
        assert abs(made.created_at - database.now(db)) < timedelta(minutes=1)
        assert not db.new
    with database.read() as db:
        assert db.get_one(Organization, "org_new").name == "new"


def test_what_is_inserted_may_be_selected(database: Database) -> None:
    given = (
        *("id", "name", "slug", "plan", "status", "require_mfa", "alert_emails"),
        "spending_cap_on_reach",
    )
    adding = Insertion(
        Organization,
        lambda _dialect: insert(Organization).from_select(given, select(*map(bindparam, given))),
    )
    with database.write() as db:
        for each in ("one", "two"):
            adding.write(db, id=f"org_{each}", name=each, slug=each)
        found = organizations.fetch(db, "org_two")
        assert (found.name, found.slug, found.plan, found.status) == ("two", "two", "free", "open")


def test_what_only_reads_is_asked_without_writing(database: Database) -> None:
    with database.read() as db:
        db.add(Organization(id="org_never", name="never", slug="never"))
        assert names(db) == []
        db.expunge_all()


def test_one_that_is_added_is_the_organizations_own(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), organizations.create(db, name="b", slug="b")
        made = _another(tenants.instance(db, tenant))
        tenancy.restrict(db, other.id)
        with pytest.raises(TenancyBroken):
            instances.add(db, made)
    with database.read() as db, pytest.raises(RuntimeError, match="asked to write"):
        instances.add(db, made)


def test_one_that_lacks_what_is_made_of_other_values_is_not_added(database: Database) -> None:
    with database.write() as db:
        made = _another(tenants.instance(db, tenants.make(db)))
        del made.team_id
        with pytest.raises(KeyError, match="team_id"):
            instances.add(db, made)


def _values(instance: Instance) -> dict[str, Any]:
    return {key: value for key, value in vars(instance).items() if key != "_sa_instance_state"}


def _another(instance: Instance) -> Instance:
    """Like it, but for what is unique, and what the database gives."""
    given = ("created_at", "updated_at", "credentials_generation")
    values = {key: value for key, value in _values(instance).items() if key not in given}
    return Instance(**{**values, "id": "inst_new", "name": "new", "host": "new"})


def test_the_clock_is_asked_without_writing_what_waits(database: Database) -> None:
    with database.write() as db:
        db.add(User(id="usr_1", email="a@example.com", name="A"))
        database.now(db)
        assert db.new
        lookups.by_key(db, User, "usr_2")
        assert not db.new
