"""Files of pg_dump: recognized by what is in them, read by pg_restore, restored as the owner."""

import asyncio
import itertools
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal

from cell.migrations.errors import MigrationError
from cell.migrations.postgres import psql
from cell.migrations.postgres.target import PostgresTarget
from cell.migrations.spool import lend
from cell.runtime import budget
from cell.runtime.confined_tools import ConfinedToolError
from cell.runtime.confinement import Mount
from cell.runtime.engine_folders import INSIDE
from instance_services.bounded_tar import BoundedTarInfo, TarHeaderError

Format = Literal["postgres_custom", "postgres_plain", "postgres_directory"]
HEAD_BYTES = 64 * 1024
CUSTOM = b"PGDMP"
TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
TOC = "toc.dat"
LISTING_BYTES_MAX = 64 * 2**20
MEMBERS_MAX = 200_000
NOT_OF_PG_DUMP: Final = "the archive has files that are not of pg_dump's format"
LIST_FILE = "list"
UNPACKED = "unpacked"
# What is left out of a restore: it belongs to a server, needs a superuser, or is there already.
LEFT_OUT: Final = {
    "ACL": "grants",
    "DEFAULT ACL": "grants",
    "EVENT TRIGGER": "event_trigger",
    "PUBLICATION": "publication",
    "PUBLICATION TABLE": "publication",
    "PUBLICATION TABLES IN SCHEMA": "publication",
    "SUBSCRIPTION": "subscription",
    "SUBSCRIPTION TABLE": "subscription",
    "SECURITY LABEL": "security_label",
    "DATABASE": "database",
    "DATABASE PROPERTIES": "database",
}
_ENTRY = re.compile(r"^(\d+); \d+ \d+ ([A-Z][A-Z ]*[A-Z]) (.*)$")
_VERSION = re.compile(r"^;\s+Dumped from database version: (\d+)(\S*)", re.MULTILINE)


@dataclass(frozen=True)
class TocEntry:
    """A line of a table of contents; `rest` has schema, name and owner with blanks between."""

    line: str
    kind: str
    rest: str

    @property
    def is_left_out(self) -> bool:
        if self.kind in LEFT_OUT:
            return True
        public = self.kind == "SCHEMA" and self.rest.startswith("- public ")
        said = self.kind == "COMMENT" and self.rest.startswith(
            ("- SCHEMA public ", "- EXTENSION ", "- EVENT TRIGGER ", "- PUBLICATION ")
        )
        return public or said


@dataclass(frozen=True)
class DumpContents:
    """Of an archive. `version` is that of the server which it was made from."""

    version: str | None
    entries: tuple[TocEntry, ...]

    @property
    def major(self) -> int | None:
        return int(self.version.partition(".")[0]) if self.version else None

    def of(self, kind: str) -> list[TocEntry]:
        return [each for each in self.entries if each.kind == kind]

    @property
    def extensions(self) -> list[str]:
        return [each.rest.split(" ")[1] for each in self.of("EXTENSION")]

    def without(self, extensions: set[str]) -> str:
        """What pg_restore is told to restore."""
        kept = []
        for each in self.entries:
            is_extension = each.kind == "EXTENSION" and each.rest.split(" ")[1] in extensions
            if not each.is_left_out and not is_extension:
                kept.append(each.line)
        return "\n".join(kept) + "\n"


def recognize(head: bytes) -> Format:
    """By the first bytes of a file. Raises MigrationError, which says what is taken."""
    if head.startswith(CUSTOM):
        return "postgres_custom"
    if head[TAR_MAGIC_AT:].startswith(TAR_MAGIC):
        return "postgres_directory"
    if head.startswith((GZIP, ZSTD)):
        raise MigrationError(
            "the file is compressed as a whole; send it uncompressed, or use the custom format "
            "of pg_dump (-Fc), which is compressed itself"
        )
    if b"\0" not in head:
        try:
            # The last character may be cut.
            head.decode("utf-8") if len(head) < HEAD_BYTES else head[:-4].decode(errors="strict")
        except UnicodeDecodeError:
            if b"PostgreSQL database dump" not in head:
                raise MigrationError(UNKNOWN) from None
        return "postgres_plain"
    raise MigrationError(UNKNOWN)


UNKNOWN: Final = (
    "the file is not one that can be restored; send a dump of pg_dump in the custom format (-Fc), "
    "as plain SQL, or a tar archive of its directory format (-Fd); for CSV and Parquet files, say "
    "the format files"
)


def unpack(path: Path, folder: Path, bytes_max: int, owner: int | None) -> None:
    """A tar archive of the directory format; in a thread. Only its files, by their own names."""
    try:
        _unpack(path, folder, bytes_max, owner)
    except (tarfile.TarError, EOFError, RecursionError) as error:
        raise MigrationError("the archive is cut off or damaged") from error
    except (FileExistsError, TarHeaderError) as error:
        raise MigrationError(NOT_OF_PG_DUMP) from error


def _unpack(path: Path, folder: Path, bytes_max: int, owner: int | None) -> None:
    left = bytes_max
    folder.mkdir()
    lend(folder, owner)
    with tarfile.open(path, "r|", tarinfo=BoundedTarInfo) as archive:
        for number in itertools.count(1):
            if number > MEMBERS_MAX:
                raise MigrationError("the archive has too many files")
            if (member := archive.next()) is None:
                break
            # Each is kept otherwise, with its headers.
            archive.members = []  # type: ignore[attr-defined]
            name = member.name.rstrip("/").rpartition("/")[2]
            if not member.isfile():
                continue
            left -= member.size
            if left < 0:
                raise MigrationError(str(budget.exceeded(bytes_max)))
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.]{0,99}", name):
                raise MigrationError(NOT_OF_PG_DUMP)
            reading = archive.extractfile(member)
            if reading is not None:
                _write(folder / name, reading)
                lend(folder / name, owner)
    if not (folder / TOC).exists():
        raise MigrationError(UNKNOWN)


def _write(path: Path, reading: IO[bytes]) -> None:
    with path.open("xb") as file:
        while block := reading.read(1 << 20):
            file.write(block)


async def contents(target: PostgresTarget, path: Path) -> DumpContents:
    """Raises MigrationError where pg_restore cannot read it."""
    words = [target.program("pg_restore"), "-l", seen(target, path)]
    said = await output(target, words, path, LISTING_BYTES_MAX)
    text = said.decode(errors="replace")
    matched = filter(None, map(_ENTRY.match, text.splitlines()))
    found = [TocEntry(each[0], each[2], each[3]) for each in matched]
    version = _VERSION.search(text)
    return DumpContents(version and "".join(version.groups()), tuple(found))


async def output(target: PostgresTarget, words: list[str], path: Path, bytes_max: int) -> bytes:
    pipe = asyncio.subprocess.PIPE
    tool = await target.toolbox.start(words, {}, stdout=pipe, mounts=mounts(path))
    made = b""
    try:
        while block := await tool.output.read(1 << 20):
            made += block
            if len(made) > bytes_max:
                raise MigrationError("the table of contents of the file is too large")
        await tool.ended()
    except ConfinedToolError as error:
        raise MigrationError(f"the file cannot be read: {psql.said(str(error))}") from error
    finally:
        await tool.end()
    return made


def mounts(path: Path) -> tuple[Mount, ...]:
    """The folder of the file, which tools only read."""
    return (Mount(path.parent, INSIDE / "spool", writable=False),)


def seen(target: PostgresTarget, path: Path) -> str:
    """Where a tool finds the file."""
    return str(INSIDE / "spool" / path.name if target.toolbox.host.hides_files else path)


async def restore(
    target: PostgresTarget,
    path: Path,
    words: list[str],
    *,
    jobs: int,
    listed: DumpContents | None = None,
    left_out: frozenset[str] = frozenset(),
) -> None:
    """Into the new database, until the first error. Raises MigrationError with it."""
    listed = listed or await contents(target, path)
    list_path = path.parent / LIST_FILE
    list_path.write_text(listed.without(set(left_out)))
    lend(list_path, target.toolbox.host.owner(target.instance.site))
    argv = [
        *(target.program("pg_restore"), "--no-owner", "--no-acl", "--no-tablespaces"),
        *("--exit-on-error", f"--jobs={jobs}", "-L", seen(target, list_path), *words),
        *("-d", target.database, seen(target, path)),
    ]
    where = target.place()
    tool = await target.toolbox.start(argv, where.environment, mounts=mounts(path))
    try:
        await tool.ended()
    except ConfinedToolError as error:
        raise MigrationError(f"the restore failed: {psql.said(str(error))}") from error
    finally:
        await tool.end()
