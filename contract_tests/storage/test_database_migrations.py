"""Migrations make the schema the records describe, and can be taken back."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import column, inspect, select, table

from contract_tests.databases import DIALECTS, Databases
from contract_tests.gateway.authorities import Authority
from contract_tests.storage import tenants
from storage import migrations
from storage.access import users
from storage.access.api_keys import ApiKey
from storage.access.memberships import Membership
from storage.access.projects import Project
from storage.access.teams import Team
from storage.columns import Json, Timestamp
from storage.database import Database
from storage.events import audit, events
from storage.instances.instances import Instance
from storage.network import networks
from storage.records import Record


@pytest.fixture(params=DIALECTS)
def empty(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Database]:
    database = Database(databases.empty(str(request.param)))
    yield database
    database.dispose()


def test_the_schema_is_what_the_records_describe(empty: Database) -> None:
    empty.migrate()
    with empty.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Record.metadata) == []


def test_check_constraints_are_those_of_the_records(empty: Database) -> None:
    empty.migrate()
    found = inspect(empty.engine)
    for name, described in Record.metadata.tables.items():
        declared = {str(c.name) for c in described.constraints if str(c.name).startswith("ck_")}
        assert {c["name"] for c in found.get_check_constraints(name)} == declared, name


def test_running_twice_changes_nothing(empty: Database) -> None:
    empty.migrate()
    empty.migrate()
    with empty.engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    assert current == ScriptDirectory(str(Path(migrations.__file__).parent)).get_current_head()


def test_down_and_up_again(empty: Database) -> None:
    empty.migrate()
    migrations.downgrade(empty.engine, "base")
    assert set(inspect(empty.engine).get_table_names()) == {"alembic_version"}
    empty.migrate()
    assert "instances" in inspect(empty.engine).get_table_names()


@pytest.mark.nightly
def test_bundles_of_former_versions_become_their_certificates(
    empty: Database, tmp_path: Path
) -> None:
    """A text that no certificate is in lets nobody in, and stays for its owner to replace."""
    empty.migrate()
    pem = Authority("Clients", tmp_path).pem
    given = {"around": f"\u00e9\n{pem}\nafter it", "alone": pem, "unreadable": "\u00e9"}
    with empty.write() as db:
        tenant = tenants.make(db)
        made = {name: tenants.instance(db, tenant) for name in given}
        for name, instance in made.items():
            network = networks.of_instance(db, instance)
            network.replace({"client_ca_pem": given[name]}, None)
            network.became_applied(1)
            db.add(network)
    migrations.downgrade(empty.engine, "0009")
    empty.migrate()
    with empty.read() as db:
        kept = {name: networks.of_instance(db, instance) for name, instance in made.items()}
    assert {name: each.client_ca_pem for name, each in kept.items()} == given | {"around": pem}
    # What has changed is told to the cell.
    assert {name for name, each in kept.items() if not each.is_applied} == {"around"}


def test_what_there_was_belongs_to_the_team_everyone(empty: Database) -> None:
    migrations.upgrade(empty.engine, "0010")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    org = {"plan": "free", "status": "open", "require_mfa": False}
    rows: list[tuple[str, dict[str, Any]]] = [
        ("organizations", {"id": "org_1", "name": "Org", "slug": "org", **org}),
        ("organizations", {"id": "org_2", "name": "Other", "slug": "other", **org}),
        ("users", {"id": "usr_1", "email": "a@example.org", "name": "A"}),
        ("memberships", {"org_id": "org_1", "user_id": "usr_1", "role": "member"}),
        ("projects", {"id": "proj_1", "org_id": "org_1", "name": "P", "slug": "p"}),
        ("projects", {"id": "proj_2", "org_id": "org_2", "name": "P", "slug": "p"}),
    ]
    with empty.engine.begin() as connection:
        for name, values in rows:
            made = table(name, column("created_at", Timestamp()), *(column(one) for one in values))
            connection.execute(made.insert().values(**values, created_at=at))
    empty.migrate()
    with empty.read() as db:
        found = {team.org_id: team for team in db.scalars(select(Team))}
        assert {org_id: team.id for org_id, team in found.items()} == {
            "org_1": "team_1",
            "org_2": "team_2",
        }
        assert {(team.name, team.slug) for team in found.values()} == {("Everyone", "everyone")}
        whose = {project.id: project.team_id for project in db.scalars(select(Project))}
        assert whose == {"proj_1": "team_1", "proj_2": "team_2"}
        assert [one.teams_only for one in db.scalars(select(Membership))] == [False]
    migrations.downgrade(empty.engine, "0010")
    empty.migrate()
    with empty.read() as db:
        assert {one.team_id for one in db.scalars(select(Project))} == {"team_1", "team_2"}


@pytest.mark.nightly
def test_the_audit_log_tells_which_keys_were_created_with_another(empty: Database) -> None:
    empty.migrate()
    with empty.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        user = users.create(db, email="a@example.org", name="A")
        names = ("parent", "child", "of a session", "of another")
        keys = {name: tenants.key(db, tenant.org_id, user.id).id for name in names}

        def told(org_id: str, actor_kind: str, actor: str, target: str) -> None:
            action = "api_key.create"
            audit.append(
                db, org_id, action, actor_kind=actor_kind, actor_id=actor, target=keys[target]
            )

        told(tenant.org_id, "api_key", keys["parent"], "child")
        told(tenant.org_id, "user", user.id, "of a session")
        told(other.org_id, "api_key", keys["parent"], "of another")
    migrations.downgrade(empty.engine, "202611230010")
    empty.migrate()
    with empty.read() as db:
        found = {key.id: key.created_by_key_id for key in db.scalars(select(ApiKey))}
    assert found == {**dict.fromkeys(keys.values()), keys["child"]: keys["parent"]}


def test_a_revision_is_named_by_its_time_and_follows_the_one_before() -> None:
    """So two branches that add one each do not take the same name, and do not become two heads.

    By the file's name the newest is known without loading any of them.
    """
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    chain = [each.revision for each in reversed(list(scripts.walk_revisions()))]
    files = sorted(Path(script.path).name for script in scripts.walk_revisions())
    assert [name.partition("_")[0] for name in files] == chain, (
        "set down_revision of the later one to the earlier one, and rename it to the present time"
    )
    named_by_time = [datetime.strptime(each, "%Y%m%d%H%M") for each in chain if len(each) > 4]  # noqa: DTZ007 -- UTC by habit
    assert len(named_by_time) == len(chain) - 11, "the first eleven have numbers"


def test_a_database_at_the_newest_revision_is_left_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "upgrade", None)
    database.migrate()


@pytest.mark.nightly
def test_restarts_of_former_versions_are_told_once(empty: Database) -> None:
    """As the cell's word, which the cell can take back; not so why a request failed."""
    empty.migrate()
    again, failed = "started again at 2030-01-01T00:00:00.000Z: why", "pausing failed: why"
    with empty.write() as db:
        tenant = tenants.make(db)
        made = [
            tenants.instance(db, tenant, status="running", **reason).id
            for reason in ({"cell_reason": again}, {"status_reason": failed, "cell_reason": again})
        ]
    migrations.downgrade(empty.engine, "202611230800")
    with empty.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT id, status_reason FROM instances")
        before = {one.id: one.status_reason for one in rows}
    assert before == {made[0]: again, made[1]: failed}
    empty.migrate()
    with empty.read() as db:
        found = {
            one.id: (one.status_reason, one.cell_reason) for one in db.scalars(select(Instance))
        }
    assert found == {made[0]: (None, again), made[1]: (failed, None)}


@pytest.mark.nightly
def test_events_of_former_versions_are_numbered_in_their_order(empty: Database) -> None:
    migrations.upgrade(empty.engine, "202611230052")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    org = {"plan": "free", "status": "open", "require_mfa": False}
    rows: list[tuple[str, dict[str, Any]]] = [
        ("organizations", {"id": "org_1", "name": "Org", "slug": "org", **org}),
        ("organizations", {"id": "org_2", "name": "Other", "slug": "other", **org}),
        *(
            ("events", {"id": f"evt_{n}", "org_id": org_id, "type": "instance.paused.v1"})
            for n, org_id in ((3, "org_1"), (1, "org_1"), (2, "org_2"))
        ),
    ]
    with empty.engine.begin() as connection:
        for name, values in rows:
            told = {"data": {}, "time": at} if name == "events" else {}
            made = table(
                name,
                column("created_at", Timestamp()),
                column("time", Timestamp()),
                column("data", Json),
                *(column(one) for one in values),
            )
            connection.execute(made.insert().values(**values, **told, created_at=at))
    empty.migrate()
    with empty.write() as db:
        events.append(db, "org_1", "instance.paused.v1", {})
    with empty.read() as db:
        found = events.after(db, "org_1", 0, scope=None, limit=10)
        assert [one.id for one in found[:2]] == ["evt_1", "evt_3"]
        assert [one.seq for one in found] == [1, 2, 3]
        assert events.newest(db, "org_2") == (1, "evt_2")
