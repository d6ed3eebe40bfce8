"""What is written to an instance while a way back is kept, and what both sides then have."""

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from cell.migrations.postgres.tables import ALIKE
from contract_tests.cell.migrations.migration_calls import client
from contract_tests.cell.migrations.source_server import USER, SourceDatabase
from contract_tests.cell.rig import Rig, until

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
# In the instance.
COPIED = (
    "a, b, c, d, e, f, g, i, j, k, l, m, n, o, p, q, r, s, t, u, x, y, z, aa, ab, ac, ad, ae, af, "
    "ag, ah, ai, aj, ak, al, am, an, ao, ap, aq, ar, at, au, av, aw, ax, ay, az, ba, bb, bc, bd, "
    '"quoted ""name"'
)
# Each as a transaction.
WRITTEN = (
    f"INSERT INTO everything ({COPIED}) SELECT {COPIED} FROM everything WHERE id = 7",
    "UPDATE everything SET w = w + 100, g = E'\\\\;''\\n:id' || w WHERE id % 5 = 0",
    "UPDATE everything SET at = 'happy', r = '1 mon -1 day', av = '(,)', k = '\\x00' WHERE id = 8",
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
    "INSERT INTO no_columns DEFAULT VALUES",
    "INSERT INTO renewed VALUES (3); DELETE FROM renewed WHERE stays = 1",
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
CREATE TABLE history (what text, large text);
ALTER TABLE history REPLICA IDENTITY FULL;
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, told text UNIQUE);
INSERT INTO stock SELECT n, 0 FROM generate_series(1, 100) n;
INSERT INTO orders (told) SELECT 'order ' || n FROM generate_series(1, 20) n;
"""


class Writer(threading.Thread):
    """Of the instance, until it is told to stop, whatever happens to its connections."""

    def __init__(self, rig: Rig, instance_id: str) -> None:
        super().__init__(daemon=True)
        route, credential = rig.route(instance_id), rig.reveal(instance_id)
        assert route is not None
        self._login = {
            "host": str(Path(route["socket"]).parent),
            "user": credential["username"],
            "password": credential["password"],
            "dbname": "app",
        }
        self.written = 0
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            with contextlib.suppress(psycopg.Error), psycopg.connect(**self._login) as connection:
                while not self.ending.is_set():
                    # One that is applied twice is there twice.
                    connection.execute("INSERT INTO history VALUES ('during')")
                    connection.execute("UPDATE stock SET count = count + 1 WHERE item = 7")
                    connection.execute("INSERT INTO orders (told) VALUES (gen_random_uuid())")
                    connection.commit()
                    self.written += 1
                    time.sleep(0.002)
            time.sleep(0.05)

    def wrote(self) -> None:
        """Something more."""
        before = self.written
        until(lambda: self.written > before + 3, "it has written more")

    def stop(self) -> None:
        self.ending.set()
        self.join()


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
