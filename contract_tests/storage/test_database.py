"""Transactions, clock, types and the translation of errors, on both databases."""

import contextlib
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Table, event, select, text
from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.schema import CreateTable

from contract_tests.databases import Databases
from contract_tests.storage import tenants
from storage import identifiers
from storage.access import organizations, projects, users
from storage.access.organizations import Organization
from storage.access.projects import Project
from storage.access.teams import Team, everyone_of
from storage.access.users import User
from storage.columns import Timestamp, is_among
from storage.database import Database, on_commit, unwritten
from storage.errors import RecordNotFound, SchemaUnknown, StateConflict, StorageUnavailable
from storage.instances.changes import Change

moments = st.datetimes(
    min_value=datetime(1990, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone
    max_value=datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.integers(-14, 14).map(lambda hours: timezone(timedelta(hours=hours))),
)
# PostgreSQL's text holds every character but NUL, and SQLite's JSON numbers are of 64 bits.
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=5,
)


def make_org(database: Database, **values: str) -> str:
    with database.write() as db:
        return organizations.create(db, name="Org", **{"slug": "org", **values}).id


def test_what_raises_is_rolled_back(database: Database) -> None:
    with pytest.raises(RuntimeError):
        _create_and_fail(database)
    with database.read() as db:
        assert db.scalars(select(Organization)).all() == []


def _create_and_fail(database: Database) -> None:
    with database.write() as db:
        organizations.create(db, name="Org", slug="org")
        raise RuntimeError


def test_a_read_session_writes_nothing(database: Database) -> None:
    org_id = make_org(database)
    with database.read() as db:
        organizations.fetch(db, org_id).name = "changed"
        with pytest.raises(RuntimeError, match="asked to write"):
            db.flush()


def test_what_a_read_session_was_given_to_write_is_told(database: Database) -> None:
    org_id = make_org(database)
    with database.read() as db:
        assert unwritten(db) == []
        changed, gone = organizations.fetch(db, org_id), db.get_one(Team, everyone_of(org_id))
        changed.name = "changed"
        db.delete(gone)
        added = User(id="usr_1", email="ada@example.org", name="Ada")
        db.add(added)
        assert unwritten(db) == [added, changed, gone]
    with database.write() as db:
        organizations.fetch(db, org_id).name = "changed"
        assert unwritten(db) == []


def test_moments_and_lists_are_types_of_postgresql_there() -> None:
    dialect = Database("postgresql://nobody@/none?host=/nonexistent").engine.dialect
    columns = str(CreateTable(cast("Table", User.__table__)).compile(dialect=dialect))
    assert "created_at TIMESTAMP WITH TIME ZONE NOT NULL" in columns
    among = select(User.id).where(is_among(User.id, "ids")).compile(dialect=dialect)
    assert str(among).endswith("users.id = ANY(%(ids)s::TEXT[])")
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
    there = Timestamp().process_bind_param(moment, dialect)
    assert there == moment.replace(microsecond=678_000)
    elsewhere = moment.astimezone(timezone(timedelta(hours=2)))
    found = Timestamp().process_result_value(elsewhere, dialect)
    assert found is not None
    assert (found, found.tzinfo) == (moment, UTC)
    assert dialect.driver == "psycopg"


def test_what_waits_for_the_commit_runs_after_it_once_or_never(database: Database) -> None:
    done: list[str] = []

    def act() -> None:
        done.append("acted")

    with database.write() as db:
        on_commit(db, act)
        on_commit(db, act)
        assert done == []
    assert done == ["acted"]

    def fail() -> None:
        with database.write() as db:
            on_commit(db, act)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert done == ["acted"]


def test_writers_do_not_lose_each_others_updates(database: Database) -> None:
    org_id = make_org(database)

    def add_one() -> None:
        for _ in range(10):
            with database.write() as db:
                row = db.get_one(Organization, org_id, with_for_update=True)
                row.name += "+"

    threads = [threading.Thread(target=add_one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as db:
        assert organizations.fetch(db, org_id).name == "Org" + "+" * 60


def test_readers_see_one_state_while_others_write(database: Database) -> None:
    if database.dialect != "sqlite":
        pytest.skip("on PostgreSQL each statement sees the newest state")
    org_id = make_org(database)
    with database.read() as db:
        assert organizations.fetch(db, org_id).name == "Org"
        with database.write() as other:
            organizations.fetch(other, org_id).name = "changed"
        db.expire_all()
        assert organizations.fetch(db, org_id).name == "Org"


def test_what_postgresql_has_planned_outlives_a_read(databases: Databases) -> None:
    """A query that is asked again and again is planned for the first few only."""
    url = databases.migrated("postgresql")
    database = Database(url)
    kept = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%organizations%'"
    with database.write() as db:
        there = organizations.create(db, name="Org", slug="org").id
    for org_id in (there, "org_nowhere") * 6:
        with contextlib.suppress(RecordNotFound), database.read() as db:
            organizations.fetch(db, org_id)
    with database.read() as db:
        assert db.scalar(text(kept)) == 1
    database.dispose()
    databases.give_back(url)


def test_what_a_read_has_changed_is_forgotten(database: Database) -> None:
    org_id = make_org(database)
    with database.read() as db:
        organizations.fetch(db, org_id).name = "changed"
    with database.read() as db:
        assert organizations.fetch(db, org_id).name == "Org"


def test_the_clock_is_the_databases_and_can_be_moved(database: Database) -> None:
    moved = Database(database.url.render_as_string(hide_password=False), clock_offset_s=7200)
    with database.write() as db, moved.read() as other:
        ahead = moved.now(other) - database.now(db)
        assert timedelta(minutes=119) < ahead < timedelta(minutes=121)
        assert abs(database.now(db) - datetime.now(UTC)) < timedelta(minutes=1)
        assert database.now(db).microsecond % 1000 == 0
    moved.dispose()


def test_created_at_is_set_by_the_database(database: Database) -> None:
    with database.write() as db:
        before = database.now(db)
        organization = organizations.create(db, name="Org", slug="org")
        assert before <= organization.created_at <= database.now(db)


def test_timestamps_come_back_as_they_went_in(database: Database) -> None:
    org_id = make_org(database)

    @given(moments)
    @settings(max_examples=25)
    def check(moment: datetime) -> None:
        with database.write() as db:
            db.get_one(Organization, org_id).closed_at = moment
        with database.read() as db:
            found = db.get_one(Organization, org_id).closed_at
            assert found is not None
            assert found.utcoffset() == timedelta(0)
            assert timedelta(0) <= moment - found < timedelta(milliseconds=1)

    check()


def test_a_timestamp_without_zone_is_refused(database: Database) -> None:
    org_id = make_org(database)
    with database.write() as db:
        db.get_one(Organization, org_id).closed_at = datetime(2030, 1, 1)  # noqa: DTZ001 - the point
        with pytest.raises(StatementError, match="without a time zone"):
            db.flush()
        db.rollback()


def test_json_comes_back_as_it_went_in(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        instance_id = tenants.instance(db, tenant).id

    @given(json_values)
    @settings(max_examples=25)
    def check(value: object) -> None:
        with database.write() as db:
            change = Change(
                id=identifiers.new("chg_"),
                org_id=tenant.org_id,
                instance_id=instance_id,
                kind="storage",
                old=value,
                new={"in": value},
            )
            db.add(change)
        with database.read() as db:
            found = db.get_one(Change, change.id)
            assert (found.old, found.new) == (value, {"in": value})

    check()


def test_a_broken_constraint_is_a_conflict_in_plain_words(database: Database) -> None:
    org_id = make_org(database)
    with database.write() as db:
        projects.create(db, org_id, name="One", slug="same")
    with (
        pytest.raises(StateConflict, match="a project with this slug already exists"),
        database.write() as db,
    ):
        projects.create(db, org_id, name="Two", slug="same")
    with database.write() as db:
        tenant = tenants.make(db)
        tenants.instance(db, tenant, name="same")
    with (
        pytest.raises(StateConflict, match="has an instance with this name"),
        database.write() as db,
    ):
        tenants.instance(db, tenant, name="same")
    with (
        pytest.raises(StateConflict, match=r"^the change conflicts with another record$"),
        database.write() as db,
    ):
        projects.create(db, "org_nowhere", name="Nowhere", slug="nowhere")


def test_enumerations_hold_in_the_database_itself(database: Database) -> None:
    make_org(database)
    with pytest.raises(IntegrityError, match="ck_organizations_plan"), database.write() as db:
        db.execute(text("UPDATE organizations SET plan = 'golden'"))


def test_what_only_a_fault_of_the_program_breaks_is_no_conflict(database: Database) -> None:
    org_id = make_org(database)
    with pytest.raises(IntegrityError, match=r"(?i)not.null"), database.write() as db:
        db.execute(text("UPDATE organizations SET name = NULL"))
    with pytest.raises(IntegrityError), database.write() as db:
        db.add(Project(id=identifiers.new("proj_"), org_id=org_id, slug="nameless"))
    with database.read() as db:
        assert organizations.fetch(db, org_id).name == "Org"


def test_any_unique_column_is_a_conflict(database: Database) -> None:
    """Also one without a sentence of its own."""
    with database.write() as db:
        tenant = tenants.make(db)
        first = tenants.instance(db, tenant)
    with (
        pytest.raises(StateConflict, match="conflicts with another record"),
        database.write() as db,
    ):
        tenants.instance(db, tenant).host = first.host


def test_a_database_that_is_not_there_is_unavailable() -> None:
    database = Database("postgresql+psycopg://nobody@/none?host=/nonexistent")
    with pytest.raises(StorageUnavailable, match="cannot be reached"), database.read() as db:
        db.execute(text("SELECT 1"))
    database.dispose()


def test_a_sqlite_database_in_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a file"):
        Database("sqlite://")


def test_sqlite_is_set_up_for_safety_and_speed(database: Database) -> None:
    if database.dialect != "sqlite":
        pytest.skip("SQLite's own settings")
    with database.read() as db:
        found = {
            pragma: db.execute(text(f"PRAGMA {pragma}")).scalar_one()
            for pragma in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert found == {
        "journal_mode": "wal",
        "synchronous": 1,
        "foreign_keys": 1,
        "busy_timeout": 15_000,
    }


def test_identifiers_ascend_also_within_a_millisecond() -> None:
    made: list[str] = []

    def make_many() -> None:
        mine = [identifiers.new("inst_") for _ in range(500)]
        assert mine == sorted(mine)
        made.extend(mine)

    threads = [threading.Thread(target=make_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 2000
    assert all(len(each) == len("inst_") + 26 for each in made)


def test_a_database_in_memory_is_refused() -> None:
    for url in ("sqlite://", "sqlite:///:memory:"):
        with pytest.raises(ValueError, match="sqlite needs a file: every connection to :memory:"):
            Database(url)


def test_an_error_tells_nothing_of_what_was_stored(database: Database) -> None:
    ada = {"email": "ada@example.org", "name": "Ada", "password_hash": "a secret"}
    with database.write() as db:
        users.create(db, **ada)
    with pytest.raises(StateConflict) as refused, database.write() as db:
        users.create(db, **ada)
    cause = refused.value.__cause__
    assert isinstance(cause, IntegrityError)
    assert "INSERT INTO users" in str(cause)
    assert "a secret" not in str(cause)


def test_postgresql_is_asked_in_utc_and_its_errors_hold_nothing_stored() -> None:
    database = Database("postgresql://nobody@/none?host=/nonexistent")
    asked: list[str] = []

    @event.listens_for(database.engine, "do_connect")
    def _asked(_dialect: Any, _record: Any, _given: Any, named: dict[str, Any]) -> None:
        asked.append(named["options"])

    with pytest.raises(StorageUnavailable, match="cannot be reached"), database.read() as db:
        db.execute(text("SELECT 1"))
    assert asked == ["-c timezone=UTC"]
    assert database.engine.hide_parameters
    database.dispose()


def test_a_database_that_another_version_has_upgraded_is_left_alone(database: Database) -> None:
    with database.engine.begin() as connection:
        known = connection.scalar(text("SELECT version_num FROM alembic_version"))
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaUnknown) as refused:
        database.migrate()
    # The tables are other tests' too.
    with database.engine.begin() as connection:
        connection.execute(
            text("UPDATE alembic_version SET version_num = :known"), {"known": known}
        )
    assert refused.value.detail == (
        "the database is at revision 9999, but this version knows revisions up to"
        f" {known}: start the version that upgraded it, or a newer one"
    )
