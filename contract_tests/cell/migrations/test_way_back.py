"""After a cutover the source gets what is written to the instance, as long as a way back is kept."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cell.migrations.postgres.tables import ALIKE
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
from contract_tests.cell.migrations.test_sync import cut_over, syncing
from contract_tests.cell.rig import Rig, until

pytestmark = pytest.mark.usefixtures("emptied")

EVERY_TYPE = Path(__file__).with_name("every_type.sql")
# What a sync blocks without: something that tells rows apart, and no large objects.
SYNCED = """
SELECT lo_unlink(4242);
ALTER TABLE measurements_2025 REPLICA IDENTITY FULL;
ALTER TABLE measurements_2026_0 REPLICA IDENTITY FULL;
ALTER TABLE measurements_2026_1 REPLICA IDENTITY FULL;
ALTER TABLE children REPLICA IDENTITY FULL;
ALTER TABLE references_it REPLICA IDENTITY FULL;
ALTER TABLE no_columns REPLICA IDENTITY FULL;
ALTER TABLE renewed REPLICA IDENTITY FULL;
CREATE TABLE texts (id citext PRIMARY KEY, told text, large text, at char(7));
CREATE TABLE whole (n int, j json, f float8, p point, r pair, large text);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE kept (a mood[], b text, c int DEFAULT 0, PRIMARY KEY (a, b));
ALTER TABLE texts ALTER large SET STORAGE EXTERNAL;
ALTER TABLE whole ALTER large SET STORAGE EXTERNAL;
INSERT INTO texts SELECT 'Text ' || n, 'a', repeat('x', 20000), 'abc' FROM generate_series(1, 9) n;
INSERT INTO whole SELECT 1 + n / 3, '{"a": [1 ]}', 'NaN', '(1,2)', '(1,"a,b")', repeat('y', 20000)
    FROM generate_series(1, 9) n;
INSERT INTO kept VALUES ('{ok}', E'a\\\\b''c'), ('{}', '');
"""
# In the instance, each as a transaction.
WRITTEN = (
    "INSERT INTO everything (a, b, c, d, e, f, g, i, j, k, l, m, n, o, p, q, r, s, t, u, x, y, z,"
    " aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al, am, an, ao, ap, aq, ar, at, au, av, aw, ax,"
    ' ay, az, ba, bb, bc, bd, "quoted ""name")'
    " SELECT a, b, c, d, e, f, g, i, j, k, l, m, n, o, p, q, r, s, t, u, x, y, z,"
    " aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al, am, an, ao, ap, aq, ar, at, au, av, aw, ax,"
    ' ay, az, ba, bb, bc, bd, "quoted ""name" FROM everything WHERE id = 7',
    "UPDATE everything SET w = w + 100, g = E'\\\\;''\\n:id' || w WHERE id % 5 = 0",
    "UPDATE everything SET at = 'happy', r = '1 mon -1 day', av = '(,)', k = '\\x00ff' WHERE id = 8",
    "DELETE FROM everything WHERE id % 7 = 0",
    "UPDATE texts SET told = 'b' WHERE id = 'text 1'",
    "UPDATE texts SET id = 'Moved', told = NULL, at = 'x' WHERE id = 'Text 2'",
    "UPDATE texts SET large = repeat('z', 30000) WHERE id = 'Text 3'",
    "DELETE FROM texts WHERE id = 'text 4'",
    "UPDATE whole SET n = n + 10 WHERE ctid = (SELECT min(ctid) FROM whole WHERE n = 2)",
    "UPDATE whole SET j = NULL, f = -0.1, r = '(,)' WHERE n = 3",
    "DELETE FROM whole WHERE ctid = (SELECT min(ctid) FROM whole WHERE n = 2)",
    "UPDATE kept SET b = 'd', c = 5 WHERE a = '{ok}'; UPDATE kept SET c = 6 WHERE a = '{}'",
    "UPDATE measurements SET at = at + 365 WHERE at < '2025-08-01'",
    "DELETE FROM measurements WHERE place = 'p900'",
    "INSERT INTO measurements SELECT '2026-12-31', 'q' || n, 0.1 FROM generate_series(1, 5) n",
    "INSERT INTO no_columns DEFAULT VALUES; INSERT INTO renewed VALUES (3); DELETE FROM renewed"
    " WHERE stays = 1",
    'DELETE FROM "odd schema"."Odd; table" WHERE "select" IN (3, 50)',
    'UPDATE "odd schema"."Odd; table" SET "a b" = \'new\' WHERE "select" = 51',
    "DELETE FROM children; INSERT INTO children VALUES (5, NULL); INSERT INTO parents VALUES (6)",
    "TRUNCATE measurements_2025",
    "BEGIN; INSERT INTO renewed SELECT generate_series(1, 3000); ROLLBACK",
    "INSERT INTO renewed SELECT generate_series(10, 3000)",
    "SELECT nextval('tickets') FROM generate_series(1, 3)",
)
TABLES = """
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname IN ('public', 'odd schema')
ORDER BY 1
"""
DIGEST = "SELECT count(*), sum(hashtextextended(t.*::text, 0)::numeric) FROM ONLY {} AS t"
SEQUENCES = "SELECT schemaname, sequencename, last_value FROM pg_sequences ORDER BY 1, 2"
SHOP = """
CREATE TABLE stock (item int PRIMARY KEY, count int NOT NULL);
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, told text UNIQUE);
INSERT INTO stock SELECT n, 0 FROM generate_series(1, 100) n;
INSERT INTO orders (told) SELECT 'order ' || n FROM generate_series(1, 20) n;
"""
Connection = "psycopg.Connection[tuple[Any, ...]]"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceServer]:
    """One whose user may let triggers rest."""
    folder = tmp_path_factory.mktemp("back") / "server"
    with source_server.running(folder, SOURCE) as made:
        with made.connect("super", "postgres") as connection:
            grant = f"GRANT SET ON PARAMETER session_replication_role TO {USER}"
            connection.execute(grant.encode())
        yield made


def contents(connection: "psycopg.Connection[tuple[Any, ...]]") -> dict[str, Any]:
    for each in ALIKE:
        connection.execute(each.encode())
    found: dict[str, Any] = {}
    for (name,) in connection.execute(TABLES).fetchall():
        found[name] = connection.execute(DIGEST.format(name).encode()).fetchone()
    found["sequences"] = connection.execute(SEQUENCES).fetchall()
    return found


def of_source(shop: SourceDatabase) -> dict[str, Any]:
    with shop.server.connect(USER, shop.name) as connection:
        return contents(connection)


def of_instance(rig: Rig, instance_id: str) -> dict[str, Any]:
    with client(rig, instance_id) as connection:
        return contents(connection)


def turned_round(
    rig: Rig, instance_id: str, shop: SourceDatabase, keep_s: int = 3600
) -> str:
    migration_id = syncing(rig, instance_id, shop)
    assert cut_over(rig, instance_id, migration_id, keep_s) == 200
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
        return progress["updated_at"] > began and progress["lag_bytes"] == 0

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
            assert connection.execute(f"SELECT * FROM {catalog}".encode()).fetchall() == []


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
