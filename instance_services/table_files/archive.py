"""Owns what was sent: one file, or a tar archive of files, compressed or not; passed on unpacked.

Nothing is written here, and no name of an archive is the name of a file anywhere.
"""

import gzip
import tarfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import zstandard

from instance_services.bounded_tar import BoundedTarInfo, TarHeaderError
from instance_services.table_files import framing
from instance_services.table_files.kinds import MEMBERS_MAX
from instance_services.table_files.texts import BLOCK_BYTES, NotTextError, TextFile

GZIP, ZSTD, ZIP, PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"PAR1"
TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257
FORMS: Final = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
PACKED: Final = {".gz": GZIP, ".zst": ZSTD}
# What systems put beside the files of people.
_NOBODYS: Final = ("._", ".DS_Store", "Thumbs.db")
HEADERS_MAX: Final = 20_000
NAME_CHARACTERS_MAX: Final = 300
WINDOW_BYTES_MAX: Final = 128 << 20
FINDINGS_MAX: Final = 150
"""Of those that are blocking, and of the others."""
_BROKEN: Final = (
    *(tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError),
    RecursionError,
)


class ArchiveError(Exception):
    """It cannot be taken as a whole; says why."""


@dataclass
class _Unpacking:
    """`findings` are told at the end; blocking ones of a single file do not end the others."""

    members: int = 0
    findings: list[dict[str, str]] = field(default_factory=list)

    def find(self, severity: str, code: str, where: str, message: str, remedy: str = "") -> None:
        is_blocking = severity == "blocking"
        alike = sum((each["severity"] == "blocking") is is_blocking for each in self.findings)
        if alike < FINDINGS_MAX:
            told = {"severity": severity, "code": code, "object": where[:NAME_CHARACTERS_MAX]}
            self.findings.append({**told, "message": message, "remedy": remedy})


def unpack(path: Path, name: str | None) -> None:
    """Passes on each table's file: `path`, `form`, `encoding`; then the findings.

    `name` is the table of a file that is no archive.
    """
    work = _Unpacking()
    try:
        with path.open("rb") as file:
            _unpack(work, file, name)
    except (ArchiveError, TarHeaderError) as error:
        work.find("blocking", "not_readable", "", str(error))
    except _BROKEN:
        work.find("blocking", "not_readable", "", "the file is cut off or damaged")
    if not work.members and not any(each["severity"] == "blocking" for each in work.findings):
        message = "there is no CSV or Parquet file in the archive"
        work.find("blocking", "no_tables", "", message, "name them as table.csv or table.parquet")
    framing.say({"findings": work.findings})
    framing.flush()


def _unpack(work: _Unpacking, file: IO[bytes], name: str | None) -> None:
    head = file.read(BLOCK_BYTES)
    file.seek(0)
    opened: IO[bytes] = file
    if head.startswith((GZIP, ZSTD)):
        packed = head
        head = _expanded(file, packed).read(TAR_MAGIC_AT + len(TAR_MAGIC))
        file.seek(0)
        opened = _expanded(file, packed)
    if head[TAR_MAGIC_AT:].startswith(TAR_MAGIC):
        _unpack_archive(work, opened)
    elif head.startswith(ZIP):
        raise ArchiveError("zip archives are not taken; send a tar archive (`tar -czf`)")
    elif name is None:
        raise ArchiveError(
            "the file is no tar archive; to send a single file, say the name of its table"
        )
    else:
        form = "parquet" if head.startswith(PARQUET) else "csv"
        work.members = 1
        _pass_on(work, opened, name, name, form)


def _expanded(file: IO[bytes], head: bytes) -> IO[bytes]:
    """What was compressed. The file stays open when it is closed."""
    if head.startswith(GZIP):
        return gzip.GzipFile(fileobj=file, mode="rb")  # type: ignore[return-value]
    given = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
    return given.stream_reader(file, closefd=False, read_across_frames=True)


def _unpack_archive(work: _Unpacking, file: IO[bytes]) -> None:
    headers = 0
    with tarfile.open(fileobj=file, mode="r|", tarinfo=BoundedTarInfo) as archive:
        while (member := archive.next()) is not None:
            # Each is kept otherwise, with its headers.
            archive.members = []  # type: ignore[attr-defined]
            headers += 1
            if headers > HEADERS_MAX:
                raise ArchiveError(f"the archive has more than {HEADERS_MAX} members")
            if member.isdir():
                continue
            if (found := _table(work, member)) is None:
                continue
            work.members += 1
            if work.members > MEMBERS_MAX:
                raise ArchiveError(f"the archive has more than {MEMBERS_MAX} tables")
            reading = archive.extractfile(member)
            assert reading is not None
            table, form, packed = found
            _pass_on(work, _expanded(reading, packed) if packed else reading, *table, form)


def _table(work: _Unpacking, member: Any) -> tuple[tuple[str, str], str, bytes | None] | None:
    """The member's name and its table's, what it is, and how it is compressed."""
    name = member.name.removeprefix("./")
    parts = name.split("/")
    if parts[0] == "__MACOSX" or parts[-1].startswith(_NOBODYS):
        return None
    if (wrong := _why_not(member, name, parts)) is not None:
        shown = name.encode("ascii", "backslashreplace").decode()
        work.find("blocking", wrong[0], name if name.isprintable() else shown, *wrong[1:])
        return None
    stem, packed = name, None
    for suffix, magic in PACKED.items():
        if stem.lower().endswith(suffix):
            stem, packed = stem[: -len(suffix)], magic
    suffix = Path(stem).suffix
    if (form := FORMS.get(suffix.lower())) is None:
        message = "neither CSV nor Parquet by its name, and left out"
        work.find("warning", "left_out", name, message, "name it as table.csv or table.parquet")
        return None
    return (name, stem[: -len(suffix)]), form, packed


def _why_not(member: Any, name: str, parts: list[str]) -> tuple[str, str, str] | None:
    """What is wrong with a member by its name: a code, a message, and what to do."""
    if not name.isprintable():
        message = "a name in the archive has characters that cannot be printed"
        return "bad_path", message, "rename the file"
    if not member.isreg():
        message = "the archive has something that is neither a file nor a folder"
        return "not_a_file", message, "make the archive of plain files"
    if name.startswith("/") or any(each in ("", ".", "..") for each in parts):
        message = "the name leads out of the archive, or is none"
        return "bad_path", message, "use names as schema/table.csv"
    if len(parts) > 2 or len(name) > NAME_CHARACTERS_MAX:  # noqa: PLR2004 - schema and table
        remedy = "put the file where its table is: table.csv or schema/table.csv"
        return "bad_path", "the name is not that of a table", remedy
    return None


def _pass_on(work: _Unpacking, file: IO[bytes], name: str, table: str, form: str) -> None:
    framing.say({"path": name, "table": table, "form": form})
    told: dict[str, Any] = {"complete": True, "encoding": None}
    try:
        if form == "csv":
            text = TextFile(file)
            for block in text.blocks():
                framing.pass_on(block)
            told |= {"encoding": text.encoding, "lines": text.rows.lines, "blank": text.rows.blank}
        else:
            while block := file.read(BLOCK_BYTES):
                framing.pass_on(block)
    except NotTextError as error:
        remedy = "convert it, such as by `iconv -f WINDOWS-1252 -t UTF-8`, or save it as UTF-8"
        work.find("blocking", "not_text", name, str(error), remedy)
        told["complete"] = False
    except _BROKEN:
        work.find("blocking", "not_readable", name, "the file is cut off or damaged")
        told["complete"] = False
    framing.end()
    framing.say(told)
