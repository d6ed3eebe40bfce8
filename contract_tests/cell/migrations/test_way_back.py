"""After a cutover the source gets what is written to the instance, while a way back is kept."""

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from contract_tests.cell.migrations import source_server
from contract_tests.cell.migrations.conftest import SOURCE
from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    begin,
    client,
    observed,
    path_of,
    status_is,
    unchanged,
)
from contract_tests.cell.migrations.source_server import USER, SourceDatabase, SourceServer
from contract_tests.cell.migrations.sync_calls import cut_over
from contract_tests.cell.migrations.test_sync import syncing
from contract_tests.cell.migrations.written_after import (
    EVERY_TYPE,
    SHOP,
    SYNCED,
    WRITTEN,
    Writer,
    of_instance,
    of_source,
)
from contract_tests.cell.rig import SMALL, Rig, until

pytestmark = pytest.mark.usefixtures("emptied")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceServer]:
    """One whose user may let triggers rest."""
    folder = tmp_path_factory.mktemp("back") / "server"
    with source_server.running(folder, SOURCE) as made:
        with made.connect("super", "postgres") as connection:
            grant = f"GRANT SET ON PARAMETER session_replication_role TO {USER}"
            connection.execute(grant.encode())
        yield made


def turned_round(rig: Rig, instance_id: str, shop: SourceDatabase, keep_s: int = 3600) -> str:
    migration_id = syncing(rig, instance_id, shop)
    cut_over(rig, instance_id, migration_id, keep_s)
    seen = status_is(rig, instance_id, migration_id, "completed")
    assert seen["way_back_until"] is not None, seen
    return migration_id


def caught_up(rig: Rig, instance_id: str, migration_id: str) -> None:
    """As the guide has somebody wait before the application is pointed back."""
    began = observed(rig, instance_id, migration_id)["progress"]["updated_at"]

    def is_level() -> bool:
        seen = observed(rig, instance_id, migration_id)
        assert seen["way_back_until"] is not None, seen
        progress = seen["progress"]
        return bool(progress["updated_at"] > began and progress["lag_bytes"] == 0)

    until(is_level, "the source has everything")
    seen = observed(rig, instance_id, migration_id)
    assert (seen["reason"], seen["progress"]["lag_s"]) == (None, 0)


def cancel(rig: Rig, instance_id: str, migration_id: str) -> None:
    assert rig.act("DELETE", path_of(instance_id, migration_id)).status_code == 200


def ended(rig: Rig, instance_id: str, migration_id: str) -> dict[str, Any]:
    def gone() -> dict[str, Any] | None:
        seen = observed(rig, instance_id, migration_id)
        return seen if seen["way_back_until"] is None else None

    seen = dict(until(gone, "the way back has ended"))
    assert seen["status"] == "completed"
    return seen


def nothing_left(rig: Rig, instance_id: str, shop: SourceDatabase) -> None:
    assert shop.left() == []
    schemas = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'menagerie%'"
    assert shop.ask(schemas) == []
    unchanged(rig, instance_id)
    with client(rig, instance_id) as connection:
        for catalog in ("pg_replication_slots", "pg_publication", "pg_subscription"):
            counted = f"SELECT count(*) FROM {catalog}"
            assert connection.execute(counted.encode()).fetchone() == (0,), catalog


@pytest.mark.nightly
def test_everything_that_is_written_reaches_the_source(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    """All types, values that are not sent again, keys that change, partitions, truncations."""
    shop.ask(EVERY_TYPE.read_text())
    shop.ask(SYNCED)
    migration_id = turned_round(migrating, instance_id, shop)
    assert of_source(shop) == of_instance(migrating, instance_id)
    with client(migrating, instance_id) as connection:
        for each in WRITTEN:
            connection.execute(each.encode())
    caught_up(migrating, instance_id, migration_id)
    assert of_source(shop) == of_instance(migrating, instance_id)
    # Triggers have rested there, and sequences go on from where they are.
    assert shop.ask("SELECT nextval('tickets')") == [(1048,)]
    cancel(migrating, instance_id, migration_id)
    assert ended(migrating, instance_id, migration_id)["reason"] is None
    nothing_left(migrating, instance_id, shop)


@pytest.mark.nightly
def test_nothing_is_applied_twice_or_lost_whatever_is_killed(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    """And nobody else may write to the source: that is found, and ends it."""
    shop.ask(SHOP)
    migration_id = turned_round(migrating, instance_id, shop)
    assert told(migrating, instance_id, migration_id) == []
    writer = Writer(migrating, instance_id)
    writer.start()
    for _ in range(2):
        writer.wrote()
        migrating.kill()
        writer.wrote()
        migrating.start()
    writer.wrote()
    shop.server.kill()
    until(
        lambda: (
            "cannot be reached" in (observed(migrating, instance_id, migration_id)["reason"] or "")
        ),
        "it is told that the source is away",
    )
    writer.wrote()
    shop.server.start()
    writer.wrote()
    os.kill(migrating.engine_pid(instance_id), signal.SIGKILL)
    writer.wrote()
    with client(migrating, instance_id) as connection:
        # More than is sent or committed at once, and than fits into the memory of a decoder.
        connection.execute("INSERT INTO history SELECT n, 'x' FROM generate_series(1, 60000) n")
        connection.execute("INSERT INTO history VALUES ('large', repeat('abcdefgh', 1000000))")
    writer.stop()
    caught_up(migrating, instance_id, migration_id)
    assert of_source(shop) == of_instance(migrating, instance_id)
    assert (
        shop.ask("SELECT count(*) FROM history WHERE what = 'during'")[0][0] >= writer.written > 20
    )

    shop.ask("DELETE FROM stock WHERE item = 9")
    with client(migrating, instance_id) as connection:
        connection.execute("UPDATE stock SET count = 1 WHERE item = 8")
        connection.execute("UPDATE stock SET count = 1 WHERE item = 9")
    seen = ended(migrating, instance_id, migration_id)
    assert seen["reason"] == (
        "the way back has ended: a row of public.stock that was changed in the instance is not at "
        "the source: somebody else has written there"
    )
    assert shop.ask("SELECT count FROM stock WHERE item = 8") == [(1,)]
    nothing_left(migrating, instance_id, shop)


@contextlib.contextmanager
def triggers_act(server: SourceServer) -> Iterator[None]:
    """As with most users that are no superusers."""
    parameter = "SET ON PARAMETER session_replication_role"
    with server.connect("super", "postgres") as connection:
        connection.execute(f"REVOKE {parameter} FROM {USER}".encode())
        yield
        connection.execute(f"GRANT {parameter} TO {USER}".encode())


CASCADING = """
CREATE TABLE bought (n int PRIMARY KEY, item int REFERENCES stock ON DELETE CASCADE);
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO history VALUES (TG_OP);
    RETURN NEW;
END $$;
CREATE TRIGGER notes AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION noted();
"""


@pytest.mark.nightly
def test_what_would_act_twice_is_refused_until_it_rests(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    shop.ask(SHOP + CASCADING)
    with triggers_act(shop.server):
        migration_id = syncing(migrating, instance_id, shop)
        assert [each["message"][:34] for each in told(migrating, instance_id, migration_id)] == [
            "a cutover cannot keep a way back: "
        ]
        cut_over(migrating, instance_id, migration_id, 60)
        seen = thrown_back(migrating, instance_id, migration_id)
        assert (
            "the foreign key bought_item_fkey of public.bought, the trigger notes" in seen["reason"]
        )
        assert "GRANT SET ON PARAMETER session_replication_role" in seen["reason"]
        assert shop.ask("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'menagerie%'") == []
    cut_over(migrating, instance_id, migration_id, 5)
    status_is(migrating, instance_id, migration_id, "completed")
    with client(migrating, instance_id) as connection:
        connection.execute("INSERT INTO bought VALUES (1, 1), (2, 2)")
        connection.execute("INSERT INTO orders (told) VALUES ('new')")
        connection.execute("DELETE FROM stock WHERE item = 2")
    until(lambda: shop.ask("SELECT count(*) FROM stock") == [(99,)], "it has come")
    assert of_source(shop) == of_instance(migrating, instance_id)
    # Its time is over.
    assert ended(migrating, instance_id, migration_id)["reason"] is None
    nothing_left(migrating, instance_id, shop)


def told(rig: Rig, instance_id: str, migration_id: str) -> list[dict[str, Any]]:
    """Before anything was copied."""
    findings = observed(rig, instance_id, migration_id)["preflight"]["findings"]
    return [each for each in findings if each["code"] == "no_way_back"]


def thrown_back(rig: Rig, instance_id: str, migration_id: str) -> dict[str, Any]:
    def refused() -> dict[str, Any] | None:
        seen = observed(rig, instance_id, migration_id)
        return seen if seen["status"] == "syncing" and seen["reason"] else None

    return dict(until(refused, "the cutover is refused"))


@pytest.mark.nightly
def test_a_user_without_rights_over_triggers_can_have_one(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    """And it ends with a change of the schema; no other migration begins meanwhile."""
    shop.ask(SHOP + "CREATE TABLE bought (n int PRIMARY KEY, item int REFERENCES stock);")
    with triggers_act(shop.server):
        migration_id = turned_round(migrating, instance_id, shop)
        refused = begin(migrating, instance_id, CONNECTION)
        assert (refused.status_code, "has a way back" in refused.text) == (409, True)
        migrating.rotate(instance_id, overlap_s=0)
        with client(migrating, instance_id) as connection:
            connection.execute("INSERT INTO bought SELECT n, n FROM generate_series(1, 9) n")
            connection.execute("CREATE INDEX ON bought (item); ANALYZE")
            connection.execute("BEGIN; INSERT INTO stock VALUES (500, 1)")
            connection.execute("INSERT INTO bought VALUES (500, 500); COMMIT")
        migrating.action(instance_id, "pause")
        until(
            lambda: (
                "is not running" in (observed(migrating, instance_id, migration_id)["reason"] or "")
            ),
            "it waits for the instance",
        )
        migrating.action(instance_id, "resume")
        caught_up(migrating, instance_id, migration_id)
        assert of_source(shop) == of_instance(migrating, instance_id)
        with client(migrating, instance_id) as connection:
            connection.execute("ALTER TABLE stock ADD place text")
        seen = ended(migrating, instance_id, migration_id)
        assert "tables or columns were made, changed or dropped in the instance" in seen["reason"]
        nothing_left(migrating, instance_id, shop)


@pytest.mark.nightly
def test_it_goes_with_its_instance(migrating: Rig, shop: SourceDatabase) -> None:
    instance_id = migrating.make()
    shop.ask(SHOP)
    migration_id = turned_round(migrating, instance_id, shop)
    # Its engine, which keeps the slot, does not run.
    migrating.action(instance_id, "pause")
    migrating.action(instance_id, "delete")
    assert ended(migrating, instance_id, migration_id)["reason"] == "the instance was deleted"
    assert shop.ask("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'menagerie%'") == []
    migrating.put(instance_id)
    migrating.action(instance_id, "resume")
    until(lambda: not publications(migrating, instance_id), "slot and publication have gone")
    nothing_left(migrating, instance_id, shop)


def publications(rig: Rig, instance_id: str) -> int:
    """Removed after the slot."""
    with client(rig, instance_id) as connection:
        row = connection.execute("SELECT count(*) FROM pg_publication").fetchone()
    assert row is not None
    return int(row[0])


def slots(rig: Rig, instance_id: str) -> int:
    with client(rig, instance_id) as connection:
        row = connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.nightly
def test_more_than_the_instance_keeps_ends_it(migrating: Rig, shop: SourceDatabase) -> None:
    """A source that is away does not fill the storage of the instance."""
    instance_id = migrating.make(size={**SMALL, "storage_bytes": 10**9})
    shop.ask(SHOP)
    migration_id = turned_round(migrating, instance_id, shop)
    shop.server.kill()
    try:
        with client(migrating, instance_id) as connection:
            while slots(migrating, instance_id):
                connection.execute(
                    "INSERT INTO history SELECT md5(n::text), repeat('x', 200)"
                    " FROM generate_series(1, 100000) n"
                )
                connection.execute("TRUNCATE history")
        seen = ended(migrating, instance_id, migration_id)
        assert "more was written than the instance keeps for it" in seen["reason"]
        assert "could not be removed at the source" in seen["reason"]
    finally:
        shop.server.start()
    assert slots(migrating, instance_id) == 0


@pytest.mark.nightly
def test_a_row_that_is_too_large_ends_it(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    shop.ask(SHOP)
    migration_id = turned_round(migrating, instance_id, shop)
    with client(migrating, instance_id) as connection:
        connection.execute("INSERT INTO history VALUES ('fits', repeat('x', 16000000))")
        connection.execute("INSERT INTO history VALUES ('does not', repeat('x', 17000000))")
    seen = ended(migrating, instance_id, migration_id)
    assert seen["reason"] == "the way back has ended: a row of more than 16 MiB was written"
    assert shop.ask("SELECT what FROM history") == [("fits",)]
    nothing_left(migrating, instance_id, shop)


@pytest.mark.nightly
def test_a_source_that_has_forgotten_what_it_had_ends_it(
    migrating: Rig, instance_id: str, shop: SourceDatabase
) -> None:
    """As a replica does that takes over; the instance has not kept what it would need."""
    shop.ask(SHOP)
    migration_id = turned_round(migrating, instance_id, shop)
    with client(migrating, instance_id) as connection:
        connection.execute("UPDATE stock SET count = 1")
    caught_up(migrating, instance_id, migration_id)
    migrating.kill()
    schema = f"menagerie_back_{migration_id[4:].lower()}"
    shop.ask(f"UPDATE {schema}.position SET applied = applied - 1")
    migrating.start()
    assert "is not as new as it was" in ended(migrating, instance_id, migration_id)["reason"]
    nothing_left(migrating, instance_id, shop)
