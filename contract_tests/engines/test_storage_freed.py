"""PostgreSQL at its limit and above its ceiling: what was there before is not lost."""

import contextlib
from collections.abc import Iterator

import psycopg
import pytest

from cell.runtime.host import Host
from contract_tests.cell.rig import Rig, running, until
from contract_tests.engines.fillers import LOAD, MB, SHOW, TINY, WRITABLE, Postgres, order


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("freed") / "cell") as made:
        yield made


# Slow for what it adds by day.
@pytest.mark.nightly
def test_a_load_that_is_larger_than_the_storage_ends_and_loses_nothing_else(
    rig: Rig, host: Host
) -> None:
    """One statement, by somebody who asked for nothing special; there is no larger size for all."""
    instance_id = order(rig, host, "postgres", size={**TINY, "storage_bytes": 300 * MB})
    tenant = Postgres(rig, instance_id)
    with tenant.connect() as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
        connection.execute("CREATE TABLE filled (x TEXT STORAGE PLAIN)")
        with pytest.raises(psycopg.errors.AdminShutdown):
            connection.execute(LOAD)
    seen = rig.observe(instance_id)
    assert (seen["status"], seen["restarts"]) == ("running", 0)

    def is_writable() -> bool:
        # What begins just after the limit was reached may be ended too.
        with contextlib.suppress(psycopg.errors.AdminShutdown), tenant.connect() as connection:
            connection.execute("VACUUM filled")
            return connection.execute(SHOW).fetchone() == ("off",)
        return False

    until(is_writable, "what was written in vain is given back", 60)
    with tenant.connect() as connection:
        assert connection.execute("SELECT n FROM kept").fetchall() == [(1,)]
    rig.action(instance_id, "erase")


@pytest.mark.nightly
def test_at_the_limit_the_log_of_what_was_written_is_removed_soon(rig: Rig, host: Host) -> None:
    """The server's own checkpoint takes minutes where nobody writes any more."""
    instance_id = order(rig, host, "postgres", size={**TINY, "storage_bytes": 160 * MB})
    tenant = Postgres(rig, instance_id)
    with tenant.connect() as connection:
        connection.execute("CREATE TABLE filled (x TEXT STORAGE PLAIN)")
        with pytest.raises(psycopg.errors.AdminShutdown):
            connection.execute(LOAD)
    with tenant.connect() as connection:
        written = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        assert written

        def is_written_down() -> bool:
            reached = "SELECT redo_lsn >= %s::pg_lsn FROM pg_control_checkpoint()"
            return connection.execute(reached, written).fetchone() == (True,)

        until(is_written_down, "a checkpoint has been made", 60)
    rig.action(instance_id, "erase")


@pytest.mark.nightly
def test_above_its_ceiling_it_is_started_once_more_to_be_freed(rig: Rig, host: Host) -> None:
    instance_id = order(rig, host, "postgres", size=TINY)
    tenant = Postgres(rig, instance_id)

    def is_restarted() -> bool:
        seen = rig.observe(instance_id)
        if (seen["status"], seen["restarts"]) == ("running", 0):
            tenant.fill()
        return bool(seen["restarts"])

    until(is_restarted, "it is full", 60)
    seen = rig.status_is(instance_id, "running")
    assert "the storage is full" in seen["status_reason"]
    with tenant.connect() as connection:
        connection.execute(WRITABLE)
        connection.execute("DROP TABLE filled")
    until(lambda: rig.observe(instance_id)["storage_bytes"] < 240 * MB, "there is room", 60)
    assert rig.status_is(instance_id, "running")["restarts"] == 1
    rig.action(instance_id, "erase")
