"""Archives of CSV and Parquet files, as people send them and as nobody should."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import duckdb

FILES = {"kind": "upload", "format": "files"}
ROWS = 2500
NOTES = ("", '""', "x")
EVERY_KIND = "\n".join(
    [
        "id,n ame,price,big,measured,is_ok,day,at,at_zone,clock,uu,js,bin,zip,note,mixed,nothing",
        *(
            f'{n},"a ""q"" \\ {n}\nñ",{n}.5{n % 10},{10**20 + n},{n}.5e{n % 50 - 20},'
            f"{'true' if n % 2 else 'FALSE'},{1900 + n % 200}-01-{1 + n % 28:02},"
            f"2024-01-01 10:00:0{n % 10}.{n},2024-01-01T10:00:00+02:00,10:1{n % 10},"
            f"A0EEBC99-9c0b-4ef8-bb6d-6bb9bd38{n:04},"
            f'"{{""b"": [{n}, null], ""a"": ""x\\n""}}",\\x0{n % 10},0{n},'
            f"{NOTES[n % 3]},{n if n != 200 else 'n/a'},"
            for n in range(ROWS)
        ),
    ]
).encode()
PARQUET = f"""
SELECT range AS i, (range % 200)::UTINYINT AS u, (range / 7)::DECIMAL(9, 3) AS price,
    (range / 3)::FLOAT AS r, CASE WHEN range = 5 THEN 'nan'::DOUBLE ELSE range / 3.0 END AS d,
    'x' || range || chr(9) || chr(10) || '\\.' AS t, DATE '2024-01-01' + (range % 300)::INT AS day,
    TIMESTAMP '2024-01-01 10:00:00.5' AS at, TIMESTAMPTZ '2024-01-01 10:00:00+02' AS zoned,
    TIME '10:11:12.5' AS clock, md5(range::VARCHAR)::UUID AS uu, [range, NULL] AS list,
    {{'a': range, 'b': 'x"y'}} AS struct, 'ab\\x00'::BLOB AS bin, MAP {{'k': range}} AS map,
    INTERVAL 3 DAY AS span, range % 2 = 0 AS is_ok, NULL::INT AS nothing
FROM range({ROWS})
"""


def packed(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def special(kind: bytes) -> bytes:
    """An archive with a member of that type, which leads to a file of the machine."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        member = tarfile.TarInfo("t.csv")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    return made.getvalue()


def parquet(folder: Path, query: str = PARQUET) -> bytes:
    path = folder / "made.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    return path.read_bytes()


def sized(columns: int, rows: int) -> bytes:
    """CSV of so many columns and rows."""
    head = ",".join(f"c{number}" for number in range(columns))
    row = ",".join("1" for _ in range(columns))
    return "\n".join([head, *([row] * rows)]).encode()
