"""What reads CSV and Parquet files: no row is lost, and nothing of a file gets out but its rows."""

import asyncio
import io
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import duckdb
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell.migrations.postgres.psql import PsqlSession, QueryError
from cell.runtime.confined_tools import ConfinedTool
from contract_tests.cell.migrations.table_archives import packed, parquet
from instance_services.table_files import classes, columns, kinds, reading, texts
from instance_services.table_files.classes import Digits, kind_of
from instance_services.table_files.reading import UnreadableTableError

MEMORY_BYTES = 200 << 20
VALUES = st.one_of(
    st.just(""),
    st.just('""'),
    st.text("ab1é ", max_size=5),
    st.lists(st.sampled_from(["a", '""', "\n", "\r\n", ",", ";"]), max_size=5).map(
        lambda parts: f'"{"".join(parts)}"'
    ),
)
FILES = st.builds(
    lambda width, rows, end, is_ended: (
        width,
        end.join([",".join("abc"[:width]), *(",".join(row[:width]) for row in rows)])
        + end * is_ended,
    ),
    st.integers(1, 3),
    st.lists(st.lists(VALUES, min_size=3, max_size=3), max_size=5),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)


@given(made=FILES)
def test_both_count_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[int, str]
) -> None:
    width, content = made
    text = texts.TextFile(io.BytesIO(content.encode()))
    path = tmp_path_factory.getbasetemp() / "counted.csv"
    path.write_bytes(b"".join(text.blocks()))
    with reading.connect(path.parent, MEMORY_BYTES, 1) as connection:
        file = reading.opened(connection, path, "csv")
        ((count,),) = reading.rows(connection, f"SELECT count(*) FROM {file.relation}")
    assert len(file.names) == width
    lines = text.rows.lines - (0 if width == 1 else text.rows.blank)
    assert count == lines - 1


KINDS = {
    "007": kinds.TEXT,
    "0": kinds.BIGINT,
    "-12": kinds.BIGINT,
    "123456789012345678": kinds.BIGINT,
    "1234567890123456789": kinds.DECIMAL,
    "-1.50": kinds.DECIMAL,
    ".5": kinds.DECIMAL,
    "1e5": kinds.DOUBLE,
    "1e999": kinds.TEXT,
    "NaN": kinds.TEXT,
    "TRUE": kinds.BOOLEAN,
    "yes": kinds.TEXT,
    "2024-02-29": kinds.DATE,
    "2023-02-29": kinds.TEXT,
    "0000-01-01": kinds.TEXT,
    "2024-01-01T10:00": kinds.TIMESTAMP,
    "2024-01-01 10:00:00.123456": kinds.TIMESTAMP,
    "2024-01-01 10:00:00.1234567": kinds.TEXT,
    "2024-01-01 10:00:00+02": kinds.TIMESTAMPTZ,
    "2024-01-01T10:00:00Z": kinds.TIMESTAMPTZ,
    "10:30": kinds.TIME,
    "25:00": kinds.TEXT,
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11": kinds.UUID,
    '{"a": 1}': kinds.JSON,
    "[1": kinds.TEXT,
    "\\x0aFF": kinds.BLOB,
    "\\x0": kinds.TEXT,
    "": kinds.TEXT,
    " 1": kinds.TEXT,
}


def test_a_value_is_what_it_is_written_as(tmp_path: Path) -> None:
    with reading.connect(tmp_path, MEMORY_BYTES, 1) as connection:
        query = f"SELECT v, {classes.class_of('v')} FROM (SELECT unnest(?::VARCHAR[]) AS v)"
        found = connection.execute(query, [list(KINDS)]).fetchall()
    names = [*(name for name, _ in classes.CLASSES), kinds.TEXT]
    assert {value: names[number] for value, number in found} == KINDS


@pytest.mark.parametrize(
    ("counts", "digits", "wanted"),
    [
        ({}, Digits(0, 0), kinds.TEXT),
        ({kinds.BIGINT: 1}, Digits(3, 0), kinds.BIGINT),
        ({kinds.BIGINT: 1, kinds.DECIMAL: 1}, Digits(30, 8), kinds.DECIMAL),
        ({kinds.DECIMAL: 1}, Digits(30, 9), kinds.TEXT),
        ({kinds.BIGINT: 1, kinds.DOUBLE: 1}, Digits(15, 0), kinds.DOUBLE),
        ({kinds.BIGINT: 1, kinds.DOUBLE: 1}, Digits(16, 0), kinds.TEXT),
        ({kinds.DATE: 9, kinds.TIMESTAMP: 1}, Digits(0, 0), kinds.TEXT),
    ],
)
def test_a_column_widens_only_where_nothing_is_lost(
    counts: dict[str, int], digits: Digits, wanted: str
) -> None:
    assert kind_of(counts, digits) == wanted


def test_files_reach_no_other_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    with reading.connect(folder, MEMORY_BYTES, 1) as connection:
        for statement in (
            f"SELECT * FROM read_csv('{secret}')",
            f"SELECT * FROM read_csv('{folder}/../secret.csv')",
            "SELECT * FROM read_text('/etc/passwd')",
            "SELECT * FROM glob('/etc/*')",
            f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
            f"ATTACH '{tmp_path}/other.duckdb'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SET enable_external_access = true",
            "SET allowed_directories = ['/']",
            "SET memory_limit = '100GB'",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(statement)


def test_what_cannot_be_read_is_told_without_its_values(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with reading.connect(tmp_path, MEMORY_BYTES, 1) as connection:
        for content in ("a,b\nSECRET\n", 'a,b\n1,"SECRET\n', 'a,b\n"x"SECRET,1\n'):
            path.write_text(content)
            file = reading.opened(connection, path, "csv")
            with pytest.raises(UnreadableTableError, match="line 2") as told:
                columns.find(connection, file)
            assert "SECRET" not in str(told.value)


def told_by(act: str, folder: Path, *words: str) -> list[bytes]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "instance_services.table_files", act),
            *("--folder", str(folder), "--memory-bytes", str(MEMORY_BYTES)),
            *("--process-bytes", str(5 * MEMORY_BYTES), *words),
        ],
        capture_output=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_what_refuses_a_file_is_told_however_much_else_is(tmp_path: Path) -> None:
    notes = {f"{number}.txt": b"x" for number in range(200)}
    (tmp_path / "upload").write_bytes(packed({**notes, "t.csv": b"a\n\xff\n"}))
    findings = orjson.loads(told_by("unpack", tmp_path)[-1])["findings"]
    assert findings[-1]["code"] == "not_text"
    spans = ", ".join(f"INTERVAL 3 DAY AS s{number}" for number in range(60))
    (tmp_path / "0").write_bytes(parquet(tmp_path, f"SELECT {spans}, chr(0) AS t"))
    (tmp_path / "tables.json").write_bytes(orjson.dumps([{"file": "0", "form": "parquet"}]))
    (line,) = told_by("inspect", tmp_path)
    assert orjson.loads(line)["oddities"][0]["code"] == "nul"


async def filled(content: bytes, size: int) -> None:
    """By a session, with rows in blocks of that size. Raises QueryError."""

    async def blocks() -> AsyncIterator[bytes]:
        for at in range(0, len(content), size):
            yield content[at : at + size]

    pipe = asyncio.subprocess.PIPE
    reader = await asyncio.create_subprocess_exec("cat", stdin=pipe, stdout=pipe, stderr=pipe)
    tool = ConfinedTool("cat", reader, None)
    try:
        async with asyncio.timeout(20):
            await PsqlSession(tool, is_restricted=True).fill("COPY t FROM STDIN", blocks())
    finally:
        await tool.end()


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_no_block_ends_the_rows(size: int) -> None:
    """What follows would be run as statements."""
    with pytest.raises(QueryError, match="the mark that ends them"):
        asyncio.run(filled(b"1\n\\.\nDROP TABLE mine;\n", size))


@pytest.mark.nightly
def test_a_damaged_parquet_file_is_read_or_refused(tmp_path: Path) -> None:
    """Of 300, each with bytes that were changed anywhere, its metadata above all."""
    whole, chance = parquet(tmp_path), random.Random(7)
    listed = []
    for number in range(300):
        content = bytearray(whole)
        for _ in range(chance.choice([1, 3, 30])):
            begins = chance.choice([0, len(content) - 3000])
            content[chance.randrange(begins, len(content))] = chance.randrange(256)
        (tmp_path / str(number)).write_bytes(content[: chance.choice([len(content), 40_000])])
        listed.append({"file": str(number), "form": "parquet"})
    seen = 0
    while seen < len(listed):
        (tmp_path / "tables.json").write_bytes(orjson.dumps(listed[seen:]))
        done = subprocess.run(
            [
                *(sys.executable, "-m", "instance_services.table_files", "inspect"),
                *("--folder", str(tmp_path), "--memory-bytes", str(MEMORY_BYTES)),
                *("--process-bytes", str(5 * MEMORY_BYTES)),
            ],
            capture_output=True,
            timeout=300,
            check=False,
        )
        told = [orjson.loads(line) for line in done.stdout.splitlines()]
        assert all(("error" in each) != ("rows" in each) for each in told)
        # What ends the program ends one migration.
        assert done.returncode == 0 or done.returncode < 0, done.stderr[-2000:]
        seen += len(told) + (done.returncode != 0)
