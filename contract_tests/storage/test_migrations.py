"""Migrations make the schema the records describe, and can be taken back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from contract_tests.databases import DIALECTS, Databases
from contract_tests.gateway.authorities import Authority
from contract_tests.storage import tenants
from storage import migrations, networks
from storage.database import Database
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
    for name, table in Record.metadata.tables.items():
        declared = {str(c.name) for c in table.constraints if str(c.name).startswith("ck_")}
        assert {c["name"] for c in found.get_check_constraints(name)} == declared, name


def test_running_twice_changes_nothing(empty: Database) -> None:
    empty.migrate()
    empty.migrate()
    with empty.engine.connect() as connection:
        assert migrations.current(connection) == migrations.head()


def test_down_and_up_again(empty: Database) -> None:
    empty.migrate()
    migrations.downgrade(empty.engine, "base")
    assert set(inspect(empty.engine).get_table_names()) == {"alembic_version"}
    empty.migrate()
    assert "instances" in inspect(empty.engine).get_table_names()


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


def test_a_revision_has_the_number_of_its_file() -> None:
    """By which the newest is known without loading any of them."""
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    for script in scripts.walk_revisions():
        assert Path(script.path).name.partition("_")[0] == script.revision


def test_a_database_at_the_newest_revision_is_left_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "upgrade", None)
    database.migrate()
