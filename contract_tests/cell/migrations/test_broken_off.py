"""Copies that are held up, cancelled and broken off: each ends, and leaves nothing behind."""

import contextlib
import subprocess
from collections.abc import Iterator

import pytest

from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    ask,
    begun,
    connect,
    path_of,
    refused,
    status_is,
    unchanged,
)
from contract_tests.cell.migrations.source_server import SourceDatabase
from contract_tests.cell.rig import Rig, until

pytestmark = pytest.mark.usefixtures("emptied")


# A table of somebody's is being written to in the new database.
COPYING = """
SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database
WHERE d.datname LIKE 'migration%' AND l.mode = 'RowExclusiveLock' AND l.relation >= 16384
"""
# Rows are not let in as long as the instance has a role of that name.
GATED = """
CREATE FUNCTION passes() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
    WHILE EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'gate') LOOP
        PERFORM pg_catalog.pg_sleep(0.05);
    END LOOP;
    RETURN true;
END $$;
CREATE TABLE t (n int CHECK (passes()));
INSERT INTO t SELECT generate_series(1, 20)
"""


@contextlib.contextmanager
def gate(rig: Rig, instance_id: str) -> Iterator[None]:
    ask(rig, instance_id, "CREATE ROLE gate", "postgres")
    yield
    ask(rig, instance_id, "DROP ROLE gate", "postgres")


@pytest.mark.nightly
def test_a_copy_is_cancelled_at_any_point(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    shop.ask(GATED)
    for wanted in ("preflight", "copying"):
        migration_id = begun(migrating, instance_id, CONNECTION)
        with contextlib.ExitStack() as stack:
            if wanted == "preflight":
                holder = stack.enter_context(shop.server.connect("owner", shop.name))
                holder.execute("BEGIN; LOCK TABLE t")
            else:
                stack.enter_context(gate(migrating, instance_id))
            connect(migrating, instance_id, migration_id, shop)
            status_is(migrating, instance_id, migration_id, wanted)
            cancelled = migrating.act("DELETE", path_of(instance_id, migration_id))
            assert cancelled.json()["status"] == "cancelling"
            seen = status_is(migrating, instance_id, migration_id, "cancelled")
            assert seen["reason"] is None
        again = migrating.act("DELETE", path_of(instance_id, migration_id))
        assert again.json()["status"] == "cancelled"
        unchanged(migrating, instance_id)
        until(lambda: no_tools(migrating, instance_id), "its tools have ended")


def no_tools(rig: Rig, instance_id: str) -> bool:
    words = ["pgrep", "-f", f"bwrap.*{instance_id[5:].lower()}.*(psql|pg_dump|pg_restore)"]
    return bool(subprocess.run(words, capture_output=True, check=False).returncode)


@pytest.mark.nightly
def test_nothing_is_waited_for_for_ever(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    shop.ask(GATED)
    with shop.server.connect("owner", shop.name) as holder:
        holder.execute("BEGIN; LOCK TABLE t")
        assert "did not answer within 5 s" in refused(migrating, instance_id, shop)["reason"]
    with gate(migrating, instance_id):
        assert "no row was copied for 5 s" in refused(migrating, instance_id, shop)["reason"]
    migration_id = begun(migrating, instance_id, CONNECTION)
    with shop.server.connect("owner", shop.name) as holder:
        with gate(migrating, instance_id):
            connect(migrating, instance_id, migration_id, shop)
            until(lambda: ask(migrating, instance_id, COPYING, "postgres"), "rows are on their way")
            # Before they are compared, which is after they are let in.
            holder.execute("BEGIN; LOCK TABLE t")
        seen = status_is(migrating, instance_id, migration_id, "failed")
    assert "what is in its rows" in seen["reason"]
    unchanged(migrating, instance_id)


@pytest.mark.nightly
def test_a_copy_goes_on_after_the_cell_was_killed(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    shop.ask(GATED)
    migration_id = begun(migrating, instance_id, CONNECTION)
    with gate(migrating, instance_id):
        connect(migrating, instance_id, migration_id, shop)
        status_is(migrating, instance_id, migration_id, "copying")
        migrating.kill()
        migrating.start()
        migrating.status_is(instance_id, "running")
    seen = status_is(migrating, instance_id, migration_id, "completed")
    assert seen["verification"]["rows_compared"] == 20
    assert ask(migrating, instance_id, "SELECT count(*) FROM t") == [(20,)]
    unchanged(migrating, instance_id)
