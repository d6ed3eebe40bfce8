"""Files that were sent, restored into the new database of an instance."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from cell.migrations import spool
from cell.migrations.errors import MigrationError
from cell.migrations.postgres import dump_files, plain, preflight
from cell.migrations.postgres.dump_files import LEFT_OUT, UNPACKED, DumpContents, Format
from cell.migrations.postgres.row_counts import RowCounts
from cell.migrations.postgres.target import PostgresTarget
from cell.migrations.report import PreflightFinding, PreflightReport, sizes
from cell.runtime import engine_files
from cell.runtime.own_threads import in_own_thread

BLOCK_BYTES = 1 << 20
SAID = {
    "grants": "rights that were granted are not migrated; grant them again in the instance",
    "event_trigger": "event triggers are left out",
    "publication": "publications are left out",
    "subscription": "subscriptions are left out",
    "security_label": "security labels are left out",
    "database": "properties of the database are left out",
}


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(dump_files.HEAD_BYTES)


async def recognized(folder: Path, wanted: str | None) -> Format:
    """Raises MigrationError where it is no file that can be restored, or another than was said."""
    found = dump_files.recognize(await in_own_thread(_head, folder / spool.FILE))
    if wanted is not None and wanted != found:
        raise MigrationError(f"the file was said to be {wanted}, but it is {found}")
    return found


async def archive(target: PostgresTarget, folder: Path, form: Format) -> Path:
    """What pg_restore is given: the file, or the folder that was in it."""
    path, host = folder / spool.FILE, target.toolbox.host
    owner = host.owner(target.instance.site)
    spool.lend(folder, owner)
    spool.lend(path, owner)
    if form != "postgres_directory":
        return path
    unpacked = folder / UNPACKED
    await in_own_thread(engine_files.remove, unpacked)
    room = target.instance.record.spec.size.storage_bytes
    await in_own_thread(dump_files.unpack, path, unpacked, room, owner)
    return unpacked


async def report(target: PostgresTarget, folder: Path, wanted: str | None) -> PreflightReport:
    size_bytes = (folder / spool.FILE).stat().st_size
    try:
        form = await recognized(folder, wanted)
        if form == "postgres_plain":
            version = _version(_head(folder / spool.FILE))
            major = int(version.partition(".")[0]) if version else None
            found = [PreflightFinding("info", "format", "the file is plain SQL of pg_dump")]
        else:
            listed = await dump_files.contents(target, await archive(target, folder, form))
            version, major = listed.version, listed.major
            found = await in_own_thread(lambda: list(_of_archive(target, listed, form)))
    except MigrationError as error:
        finding = PreflightFinding("blocking", "not_readable", str(error))
        return PreflightReport(None, None, size_bytes, (finding,))
    objects = await target.objects()
    found += [*preflight.of_objects(objects), *sizes(size_bytes, target.instance)]
    found += _of_version(major, target)
    return PreflightReport("postgres", version, size_bytes, tuple(found))


def _version(head: bytes) -> str | None:
    for line in head.splitlines():
        if line.startswith(b"-- Dumped from database version "):
            return line.decode(errors="replace").split()[5]
    return None


def _of_version(major: int | None, target: PostgresTarget) -> Iterator[PreflightFinding]:
    if major is not None and major > target.major:
        yield PreflightFinding(
            "warning",
            "newer_version",
            f"the file was made from PostgreSQL {major}, and the instance is PostgreSQL "
            f"{target.major}; what the older version does not know ends the restore",
            f"migrate into an instance of PostgreSQL {major} or newer",
        )


def _of_archive(
    target: PostgresTarget, listed: DumpContents, form: Format
) -> Iterator[PreflightFinding]:
    count = len(listed.of("TABLE DATA"))
    name = "custom" if form == "postgres_custom" else "directory"
    yield PreflightFinding(
        "info", "format", f"the file is in the {name} format; tables in it: {count}"
    )
    kinds = {LEFT_OUT[each.kind] for each in listed.entries if each.kind in LEFT_OUT}
    for kind in sorted(kinds):
        yield PreflightFinding("info", kind, SAID[kind])
    if any(each.kind == "FOREIGN TABLE" for each in listed.entries):
        yield PreflightFinding(
            "blocking",
            "foreign_table",
            "foreign tables need the network, which instances do not have",
            "make the dump without them (pg_dump --exclude-table)",
        )
    yield from _extensions(target, listed)


def _extensions(target: PostgresTarget, listed: DumpContents) -> Iterator[PreflightFinding]:
    """Those that are left out of the restore."""
    names = [(each, False) for each in listed.extensions]
    yield from preflight.of_extensions(
        names, target, "; it is left out, and what depends on it ends the restore"
    )


async def restore(
    target: PostgresTarget, folder: Path, jobs: int, passed: Callable[[int], None]
) -> dict[str, int]:
    """How many rows the file has for each table, as far as that can be told."""
    form = await recognized(folder, None)
    if form == "postgres_plain":
        spool.lend(folder / spool.FILE, None)
        rows, _ = await plain.restore(target, folder / spool.FILE, passed)
        return rows
    path = await archive(target, folder, form)
    listed = await dump_files.contents(target, path)
    found: list[PreflightFinding] = await in_own_thread(lambda: list(_extensions(target, listed)))
    left_out = frozenset(str(each.object) for each in found)
    await dump_files.restore(target, path, [], jobs=jobs, listed=listed, left_out=left_out)
    return await _rows(target, path)


async def _rows(target: PostgresTarget, path: Path) -> dict[str, int]:
    """Reads the file once more, to nowhere."""
    counts = RowCounts()
    words = [target.program("pg_restore"), "--data-only", "-f", "-", dump_files.seen(target, path)]
    pipe = asyncio.subprocess.PIPE
    tool = await target.toolbox.start(words, {}, stdout=pipe, mounts=dump_files.mounts(path))
    try:
        while block := await tool.output.read(BLOCK_BYTES):
            await in_own_thread(counts.feed, block)
        await tool.ended()
    finally:
        await tool.end()
    return counts.rows
