"""CSV and Parquet files become tables of a PostgreSQL, all of them or none."""

import gzip
import os
import signal
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from contract_tests.by_day import one_in
from contract_tests.cell.migrations.conftest import STORAGE_BYTES
from contract_tests.cell.migrations.migration_calls import (
    ask,
    begun,
    client,
    observed,
    path_of,
    send,
    status_is,
    token,
    unchanged,
)
from contract_tests.cell.migrations.table_archives import (
    EVERY_KIND,
    FILES,
    ROWS,
    packed,
    parquet,
    sized,
    special,
)
from contract_tests.cell.rig import SMALL, Rig, until

pytestmark = pytest.mark.usefixtures("emptied")

TYPES = {
    "id": "bigint",
    "n ame": "text",
    "price": "numeric",
    "big": "numeric",
    "measured": "double precision",
    "is_ok": "boolean",
    "day": "date",
    "at": "timestamp without time zone",
    "at_zone": "timestamp with time zone",
    "clock": "time without time zone",
    "uu": "uuid",
    "js": "jsonb",
    "bin": "bytea",
    "zip": "text",
    "note": "text",
    "mixed": "text",
    "nothing": "text",
}


def sent(rig: Rig, instance_id: str, content: bytes, table: str | None = None, **more: Any) -> str:
    source = FILES if table is None else {**FILES, "table": table}
    migration_id = begun(rig, instance_id, source, **more)
    answer = send(rig, token(rig, instance_id, migration_id), content)
    assert answer.status_code == 200, answer.text
    return migration_id


@pytest.fixture(scope="module")
def instance_id(migrating: Rig) -> str:
    return migrating.make(size={**SMALL, "storage_bytes": STORAGE_BYTES})


def types(rig: Rig, instance_id: str, table: str) -> dict[str, str]:
    query = f"""
    SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = '{table}'::regclass AND attnum > 0 ORDER BY attnum
    """
    return dict(ask(rig, instance_id, query))


def test_files_become_tables(migrating: Rig, instance_id: str, tmp_path: Path) -> None:
    ask(migrating, instance_id, "CREATE TABLE mine AS SELECT 1 AS n")
    content = packed({"shop/Every Kind.csv": EVERY_KIND, "made.parquet": parquet(tmp_path)})
    rehearsal = sent(migrating, instance_id, content, dry_run=True)
    seen = status_is(migrating, instance_id, rehearsal, "completed")
    told = {
        (each["code"], each["object"], each["message"]) for each in seen["preflight"]["findings"]
    }
    mixed = f"{ROWS - 1} of {ROWS} values are integers; row 201 is the first with another"
    assert ("mixed_types", "shop.Every Kind.mixed", f"{mixed}; it becomes text") in told
    assert ask(migrating, instance_id, "SELECT to_regclass('made')") == [(None,)]
    seen = status_is(migrating, instance_id, sent(migrating, instance_id, content), "completed")
    compared = seen["verification"]
    assert (compared["tables_compared"], compared["rows_compared"]) == (2, 2 * ROWS)
    assert compared["differences"] == []
    assert (seen["progress"]["tables_done"], seen["progress"]["rows_done"]) == (2, 2 * ROWS)
    assert seen["progress"]["bytes_done"] == seen["progress"]["bytes_total"]
    assert types(migrating, instance_id, 'shop."Every Kind"') == TYPES
    query = """
    SELECT "n ame", price::text, js->'b'->>0, bin, zip, note, count(*) OVER ()
    FROM shop."Every Kind" ORDER BY id LIMIT 3
    """
    assert [row[:6] for row in ask(migrating, instance_id, query)] == [
        ('a "q" \\ 0\nñ', "0.50", "0", b"\x00", "00", None),
        ('a "q" \\ 1\nñ', "1.51", "1", b"\x01", "01", ""),
        ('a "q" \\ 2\nñ', "2.52", "2", b"\x02", "02", "x"),
    ]
    query = "SELECT list->>0, struct->>'b', map->>'k', bin, r, d, t FROM made WHERE i = 5"
    assert ask(migrating, instance_id, query)[0][:4] == ("5", 'x"y', "5", b"ab\x00")
    owners = "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relname ~ '^(made|Every)'"
    assert ask(migrating, instance_id, owners) == [("app",)]
    assert ask(migrating, instance_id, "SELECT n FROM mine") == [(1,)]
    again = status_is(migrating, instance_id, sent(migrating, instance_id, content), "failed")
    assert again["preflight"]["findings"][0]["code"] == "table_exists"
    unchanged(migrating, instance_id)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "a path above": (packed({"../t.csv": b"a\n1\n"}), "leads out of the archive"),
    "a path from the root": (packed({"/etc/t.csv": b"a\n1\n"}), "leads out of the archive"),
    "a deep path": (packed({"a/b/t.csv": b"a\n1\n"}), "not that of a table"),
    "a control character": (packed({"t\x1b[2J.csv": b"a\n1\n"}), "cannot be printed"),
    "no UTF-8": (packed({"t.csv": b"a\nx\n\xff\xfe\n"}), "line 3 has bytes that are not UTF-8"),
    "a NUL": (packed({"t.csv": b"a\n1\x00\n"}), "line 2 has a NUL"),
    "a symbolic link": (special(tarfile.SYMTYPE), "neither a file nor a folder"),
    "a hard link": (special(tarfile.LNKTYPE), "neither a file nor a folder"),
    "a device": (special(tarfile.CHRTYPE), "neither a file nor a folder"),
    "a pipe": (special(tarfile.FIFOTYPE), "neither a file nor a folder"),
    "cut off": (packed({"t.csv": EVERY_KIND})[:-500], "cut off or damaged"),
    "cut off within": (packed({"t.csv.gz": gzip.compress(EVERY_KIND)[:-9]}), "cut off or damaged"),
    "a zip": (b"PK\x03\x04" + bytes(100), "zip archives are not taken"),
    "no archive": (b"a,b\n1,2\n", "say the name of its table"),
    "nothing in it": (packed({"README": b"hello"}), "no CSV or Parquet file"),
    "no Parquet": (packed({"t.parquet": b"PAR1" + b"\xff" * 400 + b"PAR1"}), "is damaged"),
    "empty": (packed({"t.csv": b""}), "the file is empty"),
    "twice": (packed({"t.csv": b"a\n1\n", "public/t.csv": b"a\n1\n"}), "several files"),
    "a column twice": (packed({"t.csv": b"a,a\n1,2\n"}), "several columns have the name a"),
    "no names": (packed({"t.csv": b"1,2\n3,4\n"}), "the first row has values"),
    "a column of the server": (packed({"t.csv": b"xmin,a\n1,2\n"}), "a column xmin of its own"),
    "a schema of the server": (packed({"pg_x/t.csv": b"a\n1\n"}), "a schema of the engine's own"),
    "a long name": (packed({f"{'x' * 64}.csv": b"a\n1\n"}), "more than 63 bytes"),
    "many columns": (packed({"t.csv": sized(1700, 1)}), "a table has at most 1600"),
    "too many columns": (packed({"t.csv": sized(5000, 1)}), "at most 2000 are read"),
    "a short row": (packed({"t.csv": b"a,b\n1,2\n3\n"}), "line 3 has 1 columns"),
    "an open quote": (packed({"t.csv": b'a,b\n1,"2\n'}), "a quote is opened"),
    "a lone quote": (packed({"t.csv": b'a,b\n5" pipe,2\nx,3\n'}), "a quote stands"),
    "behind many others": (
        packed({**{f"{n}.txt": b"x" for n in range(200)}, "t.csv": b"a\n1\n", "u.csv": b"a\n\xff"}),
        "line 2 has bytes that are not UTF-8",
    ),
    "behind many columns": (
        packed({"t.csv": b"a" + b"," * 250 + b"\n", "u.csv": b"a,b\n1\n"}),
        "line 2 has 1 columns",
    ),
    "a long line": (packed({"t.csv": b"a,b\n1," + b"x" * (9 << 20)}), "more than 4194304 bytes"),
}


@pytest.mark.parametrize("name", one_in(9, HOSTILE))
def test_a_hostile_file_changes_nothing(migrating: Rig, instance_id: str, name: str) -> None:
    content, told = HOSTILE[name]
    seen = status_is(migrating, instance_id, sent(migrating, instance_id, content), "failed")
    assert told in seen["reason"], seen
    blocking = [each["severity"] for each in seen["preflight"]["findings"]]
    assert blocking[0] == "blocking"
    as_before(migrating, instance_id)


def as_before(rig: Rig, instance_id: str) -> None:
    unchanged(rig, instance_id)
    assert ask(rig, instance_id, "SELECT relname FROM pg_class WHERE relnamespace = 2200") == []


@pytest.mark.nightly
def test_what_unpacks_to_more_than_the_storage_ends_there(migrating: Rig, instance_id: str) -> None:
    content = gzip.compress(b"a\n" + b"1\n" * (STORAGE_BYTES // 2 + 10**6), 1)
    seen = status_is(migrating, instance_id, sent(migrating, instance_id, content, "t"), "failed")
    assert "more bytes unpacked than the instance has storage" in seen["reason"]
    many = packed({f"t{number}.csv": b"a\n1\n" for number in range(100_000)})
    seen = status_is(migrating, instance_id, sent(migrating, instance_id, many), "failed")
    assert "more than 1000 tables" in seen["reason"]
    as_before(migrating, instance_id)


@pytest.mark.nightly
def test_a_line_without_an_end_is_refused(migrating: Rig, instance_id: str) -> None:
    content = gzip.compress(b"a,b\n" + b"x" * 10**9, 1)
    seen = status_is(migrating, instance_id, sent(migrating, instance_id, content, "t"), "failed")
    assert "a row has more than 4194304 bytes" in seen["reason"]


@pytest.mark.nightly
def test_names_are_names(migrating: Rig, instance_id: str) -> None:
    """Whatever a name says in SQL."""
    ask(migrating, instance_id, "CREATE TABLE mine AS SELECT 1 AS n")
    name = "t\"; DROP TABLE mine; --' $$\\"
    head = '"a""); DROP TABLE mine; --",select,"b\'\\"'
    content = packed({f"{name}.csv": f'{head}\n1,x,\n2,\\.,""\n'.encode()})
    seen = status_is(migrating, instance_id, sent(migrating, instance_id, content), "completed")
    codes = {each["code"] for each in seen["preflight"]["findings"]}
    assert codes == {"table", "reserved_name"}
    quoted = name.replace('"', '""')
    found = ask(migrating, instance_id, f'SELECT * FROM "{quoted}" ORDER BY 1')
    assert found == [(1, "x", None), (2, "\\.", "")]
    assert ask(migrating, instance_id, "SELECT n FROM mine") == [(1,)]


@pytest.mark.nightly
def test_a_single_file_becomes_the_table_that_is_said(migrating: Rig, instance_id: str) -> None:
    content = 'id;name\r\n1;"a\nb"\r\n2;ü\r\n'.encode("utf-16")
    seen = status_is(
        migrating, instance_id, sent(migrating, instance_id, content, "people"), "completed"
    )
    described = next(e for e in seen["preflight"]["findings"] if e["code"] == "table")
    assert described["message"].startswith("2 rows (CSV, semicolon, UTF-16); 2 columns: id bigint")
    assert ask(migrating, instance_id, "SELECT * FROM people") == [(1, "a\nb"), (2, "ü")]


@pytest.mark.nightly
def test_one_that_waits_is_cancelled(migrating: Rig, instance_id: str) -> None:
    with client(migrating, instance_id) as other:
        other.execute("BEGIN")
        other.execute("CREATE TABLE t (n int)")
        migration_id = sent(migrating, instance_id, b"a,b\n1,2\n", "t")
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        until(lambda: ask(migrating, instance_id, waits), "it waits")
        answer = migrating.act("DELETE", path_of(instance_id, migration_id))
        assert answer.status_code == 200, answer.text
        status_is(migrating, instance_id, migration_id, "cancelled")
        assert ask(migrating, instance_id, waits) == []
        other.execute("ROLLBACK")
    as_before(migrating, instance_id)


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("victim", ["cell", "engine"])
@pytest.mark.parametrize("after_s", [0.0, 0.7, 1.5, 2.5, 3.5, 4.5])
def test_whatever_is_killed_all_is_there_or_nothing(
    migrating: Rig, instance_id: str, victim: str, after_s: float
) -> None:
    content = packed({"one.csv": EVERY_KIND, "two.csv": sized(5, 400_000)})
    migration_id = sent(migrating, instance_id, content)
    time.sleep(after_s)
    if victim == "cell":
        migrating.kill()
        migrating.start()
    else:
        os.kill(migrating.engine_pid(instance_id), signal.SIGKILL)
    ended = ("completed", "failed")
    until(
        lambda: observed(migrating, instance_id, migration_id)["status"] in ended,
        "it has ended",
        within_s=120,
    )
    migrating.status_is(instance_id, "running")
    seen = observed(migrating, instance_id, migration_id)
    tables = "SELECT relname FROM pg_class WHERE relnamespace = 2200 ORDER BY 1"
    there = [name for (name,) in ask(migrating, instance_id, tables)]
    if seen["status"] == "completed":
        assert there == ["one", "two"]
        assert ask(migrating, instance_id, "SELECT count(*) FROM two") == [(400_000,)]
    else:
        assert (victim, there) == ("engine", []), seen
    sessions = "SELECT 1 FROM pg_stat_activity WHERE application_name ~ '^migration_'"
    assert ask(migrating, instance_id, sessions) == []
    unchanged(migrating, instance_id)
