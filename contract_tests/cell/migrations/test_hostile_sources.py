"""What a source or a file may say costs the cell little, and leaves no migration unfinished."""

import asyncio
import io
import tarfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from cell.migrations.errors import MigrationError
from cell.migrations.postgres import dump_files, psql, row_counts
from cell.migrations.postgres.plain import StatementErrors
from cell.migrations.postgres.psql import PsqlSession, QueryError
from cell.migrations.postgres.row_counts import RowCounts
from contract_tests.by_day import one_in
from contract_tests.cell.migrations.migration_calls import (
    CONNECTION,
    ENDED,
    begun,
    observed,
    send,
    token,
)
from contract_tests.cell.migrations.speaking_source import FACTS, TABLE, speaking
from contract_tests.cell.rig import Rig, until

if TYPE_CHECKING:
    from cell.runtime.confined_tools import ConfinedTool

HUGE = b"1" + b"0" * 30
# Of what is asked, by a text in the query.
IN_FACTS, IN_TABLES, IN_EXTENSIONS = b"wal_level", b"relreplident", b"extversion"
EXTENSION = b'{"name": "%b", "version": "1", "used": true}'


def checked(
    rig: Rig, instance_id: str, answers: dict[bytes, list[bytes]], *, dry_run: bool = True
) -> dict[str, Any]:
    """What is told of a migration, once it has ended."""
    with speaking(answers) as source:
        migration_id = begun(rig, instance_id, CONNECTION, dry_run=dry_run)
        answer = send(rig, token(rig, instance_id, migration_id), {"uri": source.uri, "tls": "off"})
        assert answer.status_code == 200, answer.text

        def ended() -> dict[str, Any] | None:
            seen = observed(rig, instance_id, migration_id)
            return seen if seen["status"] in ENDED else None

        return dict(until(ended, "the migration has ended"))


@pytest.mark.parametrize(
    "answers",
    one_in(
        9,
        [
            {IN_FACTS: [FACTS.replace(b'"bytes": 1000', b'"bytes": ' + HUGE)]},
            {IN_FACTS: [FACTS.replace(b'"bytes": 1000', b'"bytes": -5')]},
            {IN_FACTS: [FACTS.replace(b'"bytes": 1000', b'"bytes": 1e999')]},
            {IN_FACTS: [FACTS.replace(b'"bytes": 1000', b'"bytes": "many"')]},
            {IN_FACTS: [FACTS.replace(b'"17.1"', rb'"17.1\u0000\u001b[2J\u202e"')]},
            {IN_FACTS: [FACTS.replace(b'"17.1"', b'"%b"' % (b"v" * 60_000))]},
            {IN_FACTS: [FACTS.replace(b'"large_objects": 0', b'"large_objects": ' + HUGE)]},
            {IN_FACTS: [b"[]"]},
            {IN_FACTS: [b"{}"]},
            {IN_FACTS: [b"nonsense"]},
            {IN_FACTS: [b"[" * 60_000]},
            {IN_FACTS: [FACTS, FACTS]},
            {IN_TABLES: [TABLE.replace(b'"bytes": 10', b'"bytes": ' + HUGE)]},
            {IN_TABLES: [TABLE.replace(b'"t"', rb'"\u0000\u202e\n\u001b"')] * 300},
            {IN_TABLES: [b"null"]},
            {IN_EXTENSIONS: [EXTENSION % (b"x" * 500_000)]},
            {IN_EXTENSIONS: [EXTENSION % rb"\u0000\u001b"] * 500},
        ],
    ),
)
def test_whatever_a_source_says_its_migration_ends(
    migrating: Rig, instance_id: str, answers: dict[bytes, list[bytes]]
) -> None:
    """Its figures and texts can be told and kept, and the next migration can begin."""
    seen = checked(migrating, instance_id, answers)
    texts = [str(seen["reason"])]
    assert "internal" not in texts[0]
    assert "did not answer" not in texts[0]
    if (preflight := seen["preflight"]) is not None:
        assert 0 <= preflight["source"]["size_bytes"] <= 2**53
        texts.append(preflight["source"]["version"])
        texts += [str(each["object"]) for each in preflight["findings"]]
    assert all(text.isprintable() and len(text) <= 500 for text in texts), texts


def test_more_rows_than_a_database_has_names_of_are_not_read() -> None:
    async def asked() -> None:
        tool = SimpleNamespace(output=asyncio.StreamReader(limit=2**20), input=SimpleNamespace())
        tool.input.write, tool.input.drain = lambda _: None, partial(asyncio.sleep, 0)
        tool.output.feed_data(b"{}\n" * (psql.ROWS_MAX + 1))
        await PsqlSession(cast("ConfinedTool", tool), is_restricted=True).rows("SELECT")

    with pytest.raises(QueryError, match="more than can be read"):
        asyncio.run(asked())


SEIZING = (
    b"00000003-0000001B-1'; \n\\set x `touch %b`\nSELECT '1",
    b"00000003'; \\! touch %b",
    b"x\\'; \\! touch %b",
)


@pytest.mark.parametrize("name", one_in(3, SEIZING))
def test_what_a_source_says_is_never_obeyed(
    migrating: Rig, instance_id: str, name: bytes, tmp_path: Path
) -> None:
    """The tool has commands that run programs, and a query may hold what the source has said."""
    tmp_path.chmod(0o777)
    said = b'"%b"' % (name % str(tmp_path / "seized").encode()).replace(b"\\", b"\\\\").replace(
        b"\n", b"\\n"
    )
    answers = {IN_EXTENSIONS: [], b"pg_export_snapshot": [said]}
    seen = checked(migrating, instance_id, answers, dry_run=False)
    assert "snapshot" in seen["reason"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", ["A ", " ", "ALTER T ", "OWNER TO", "("])
def test_a_long_statement_is_looked_at_once(words: str) -> None:
    """Not once for each of its words: for that the cell needed minutes, and this would hours."""
    errors = StatementErrors()
    errors.hear(b"ERROR:  no")
    errors.hear(f"STATEMENT:  ALTER {words * 500_000}".encode())
    errors.settle()
    assert errors.fatal == "no"


@pytest.mark.parametrize("word", [b"x", b" (", b"COPY ", b'"', b"."])
def test_a_line_of_any_length_is_not_kept(word: bytes) -> None:
    counts = RowCounts()
    for begins in (b"COPY t FROM stdin;\n", b"\n\\.\nCOPY ", b"\n"):
        counts.feed(begins)
        for _ in range(30):
            counts.feed(word * (2**20 // len(word)))
            assert len(counts._rest) < 2**20
    counts.feed(b" FROM stdin;\nCOPY " + word * 100_000 + b" FROM stdin;\n")
    assert counts.rows == {"t": 1}


def test_more_tables_than_a_dump_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_counts, "TABLES_MAX", 10)
    with pytest.raises(MigrationError, match="more than 10 tables"):
        RowCounts().feed(b"".join(b"COPY t%d FROM stdin;\n\\.\n" % n for n in range(11)))


def header(kind: bytes, size: int) -> bytes:
    made = tarfile.TarInfo("toc.dat")
    made.type, made.size = kind, size
    return made.tobuf(tarfile.GNU_FORMAT)


def sparse() -> bytes:
    """A member whose list of blocks is its content."""
    made = tarfile.TarInfo("toc.dat")
    made.size = 10**6
    made.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    return made.tobuf(tarfile.PAX_FORMAT) + b"1\n" * 500_000


@pytest.mark.parametrize(
    "content",
    [
        header(tarfile.XHDTYPE, 10**9),
        header(tarfile.XGLTYPE, 10),
        header(tarfile.GNUTYPE_LONGNAME, 10**9),
        header(tarfile.GNUTYPE_LONGLINK, 10**9),
        header(tarfile.GNUTYPE_SPARSE, 10**9),
        sparse(),
    ],
)
def test_headers_of_an_archive_are_short(tmp_path: Path, content: bytes) -> None:
    """They are read whole: a file that is nothing but one took as much memory as it is long."""
    path = tmp_path / "upload"
    path.write_bytes(content)
    with pytest.raises(MigrationError, match="not of pg_dump"):
        dump_files.unpack(path, tmp_path / "unpacked", 10**12, None)


def archive_of(*names: str, form: int = tarfile.GNU_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            content = name.rpartition("/")[2].encode()
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        archive_of("toc.dat")[:700],
        archive_of("toc.dat", "b/toc.dat"),
        archive_of("toc.dat", "../etc/pass wd"),
        archive_of("other.dat"),
        archive_of("toc.dat").replace(b"ustar", b"ustor"),
        tarfile.TarInfo("x").create_pax_global_header({"a": "b"}),
        b"".join(header(tarfile.XHDTYPE, 0) for _ in range(5000)),
    ],
)
def test_an_archive_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "upload"
    path.write_bytes(content)
    with pytest.raises(MigrationError):
        dump_files.unpack(path, tmp_path / "unpacked", 10**6, None)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_every_form_are_unpacked(tmp_path: Path, form: int) -> None:
    folder = f"{'long' * 20}/{'er' * 30}"
    path = tmp_path / "upload"
    path.write_bytes(archive_of(f"{folder}/toc.dat", f"{folder}/3000.dat.gz", form=form))
    dump_files.unpack(path, tmp_path / "unpacked", 10**6, None)
    found = {each.name: each.read_text() for each in (tmp_path / "unpacked").iterdir()}
    assert found == {name: name for name in ("toc.dat", "3000.dat.gz")}
