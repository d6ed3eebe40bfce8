"""What a server sends its replicas: where each command ends, and whether it may be run here.

An engine runs what is in its log with all rights, and looks neither at who wrote it nor at how many
arguments a command has. So each command is held against the table of the instance's engine before:
it must be known there, write, have as many arguments as it takes, and be one that owners may run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from cell.engines.resp.connection import Answer
from cell.migrations.errors import MigrationError
from cell.migrations.report import bounded

Kind = Literal["data", "deletes", "nothing", "select", "multi", "exec"]
END: Final = b"\r\n"
# Of a length, and of a name of a command.
LINE_BYTES_MAX: Final = 24
NAME_BYTES_MAX: Final = 64
# A command's name and that of its subcommand.
NAMES_MAX: Final = 2
WORDS_MAX: Final = 1 << 22
DATABASES: Final = 16
# What a server writes for its replicas without a change of data.
WITHOUT_EFFECT: Final = frozenset({b"ping", b"replconf", b"publish", b"spublish", b"script"})
# Those that a server also writes for what has expired, or what it had no memory left for.
EXPIRES: Final = frozenset({b"del", b"unlink", b"hdel"})
# Writes, although the table does not say so.
ALSO_WRITES: Final = frozenset({b"pfcount"})
CODE: Final = frozenset({b"eval", b"evalsha", b"fcall"})
# Of those that are dangerous to others, what owners may run; see TENANT_RULES.
GIVEN_BACK: Final = frozenset({b"sort", b"flushdb", b"flushall", b"swapdb", b"restore"})
NOT_OF_OWNERS: Final = frozenset({b"function|restore"})
# Of a line that an engine passes over in its log; it takes up to 1,024.
NOTE_BYTES: Final = 1000
UNUSUAL: Final = "the source sent what no Redis or Valkey sends its replicas"
ARITY, FLAGS, CATEGORIES, SUBCOMMANDS = 1, 2, 6, 9


class StreamError(MigrationError):
    """The source sent what cannot be taken over; it would be sent again."""


class Span(NamedTuple):
    """Of bytes, from the first one that was fed."""

    start: int
    end: int


@dataclass(frozen=True)
class KnownCommand:
    """`arity` is the number of words with the name, at least so many where it is negative."""

    arity: int
    may_run: bool
    subcommands: Mapping[bytes, "KnownCommand"] = field(default_factory=dict)

    def takes(self, words: int) -> bool:
        return words == self.arity if self.arity >= 0 else words >= -self.arity


def known_commands(told: Answer) -> dict[bytes, KnownCommand]:
    """Of an engine's answer to COMMAND. Raises MigrationError."""
    try:
        return dict(_known(entry) for entry in told)
    except (ValueError, IndexError, TypeError, AttributeError) as error:
        raise MigrationError("the instance's engine does not say which commands it has") from error


def _known(entry: Answer) -> tuple[bytes, KnownCommand]:
    name = str(entry[0]).lower().encode()
    flags, categories = set(map(str, entry[FLAGS])), set(map(str, entry[CATEGORIES]))
    writes = "write" in flags or name in ALSO_WRITES
    is_owners = "@dangerous" not in categories or name in GIVEN_BACK
    may_run = writes and is_owners and "admin" not in flags and name not in NOT_OF_OWNERS
    inner = entry[SUBCOMMANDS] if entry[SUBCOMMANDS:] else []
    subcommands = dict(_known(each) for each in inner)
    short = {known.rpartition(b"|")[2]: each for known, each in subcommands.items()}
    return name, KnownCommand(int(str(entry[ARITY])), may_run, short)


class CommandStream:
    """`fed` bytes have come since it began, and of these `whole` are commands as a whole.

    After these, `database` is selected. `changed` names a command that changes data, other than
    those of EXPIRES, of which there were any if it `deletes`; both are for others to reset.
    """

    def __init__(
        self, known: Mapping[bytes, KnownCommand], bytes_max: int, database: int = 0
    ) -> None:
        self._known, self._bytes_max = known, bytes_max
        self._database = database
        self.database = database
        self.fed = self.whole = 0
        self.changed: str | None = None
        self.deletes = False
        self._in_transaction = False
        self._rest = b""
        # Of the command that is read: where it began, how many words it has and are still to come.
        self._began = self._count = self._left = self._skip = 0
        self._words: list[bytes | None] = []
        self._silent: list[Span] = []

    def feed(self, block: bytes) -> list[Span]:
        """Raises StreamError. Answers which bytes, some of which may have come before, do nothing.

        What one call takes is the time for so many bytes; it is for a thread.
        """
        data = self._rest + block
        begins = self.fed - len(self._rest)
        self.fed += len(block)
        self._silent = []
        read = self._read(data, begins)
        self._rest = data[read:]
        return self._silent

    @property
    def is_whole(self) -> bool:
        return self.whole == self.fed

    def _read(self, data: bytes, begins: int) -> int:
        """How much of it has been read; the rest is the beginning of a line or of a name."""
        at, end = 0, len(data)
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                at += step
                self._skip -= step
                if not self._skip:
                    self._word_read(begins + at)
                continue
            stop = data.find(END, at, at + LINE_BYTES_MAX)
            if stop < 0:
                if end - at >= LINE_BYTES_MAX:
                    raise StreamError(UNUSUAL)
                break
            if not self._left:
                self._began = begins + at
                self._count = self._left = _number(data[at:stop], b"*", WORDS_MAX)
                self._words = []
                at = stop + len(END)
                continue
            size = _number(data[at:stop], b"$", self._bytes_max)
            after = stop + len(END) + size + len(END)
            if len(self._words) < NAMES_MAX:
                if size <= NAME_BYTES_MAX and after > end:
                    break
                is_name = size <= NAME_BYTES_MAX
                self._words.append(data[stop + len(END) : after - len(END)] if is_name else None)
            self._skip, at = size + len(END), stop + len(END)
        return at

    def _word_read(self, place: int) -> None:
        self._left -= 1
        if not self._left:
            self._command_read(place)

    def _command_read(self, end: int) -> None:
        name = (self._words[0] or b"").lower()
        kind = self._kind(name)
        if kind == "nothing":
            self._silent.append(Span(self._began, end))
        elif kind == "select":
            self._database = _database(self._words[1])
        elif kind == "data":
            self.changed = f"{name.decode().upper()} in database {self._database}"
        elif kind == "deletes":
            self.deletes = True
        elif (kind == "multi") == self._in_transaction:
            raise StreamError(f"{UNUSUAL}: {name.decode().upper()} in the wrong place")
        else:
            self._in_transaction = kind == "multi"
        if not self._in_transaction:
            self.whole, self.database = end, self._database

    def _kind(self, name: bytes) -> Kind:
        """Raises StreamError where it may not be run."""
        if name in WITHOUT_EFFECT:
            return "nothing"
        count = self._count
        if name in {b"multi", b"exec"} and count == 1:
            return "multi" if name == b"multi" else "exec"
        if name == b"select" and count == 2:  # noqa: PLR2004 - with the number
            return "select"
        known = self._known.get(name)
        told = name
        if known is not None and known.subcommands and count > 1:
            second = (self._words[1] or b"").lower()
            told, known = name + b" " + second, known.subcommands.get(second)
        if known is None or not known.may_run or not known.takes(count):
            raise StreamError(_why_not(told, known, count))
        return "deletes" if name in EXPIRES else "data"


def _why_not(name: bytes, known: KnownCommand | None, count: int) -> str:
    told = bounded(name.decode(errors="replace").upper())[: 2 * NAME_BYTES_MAX]
    if name in CODE:
        why = (
            "the source has its replicas run its scripts, which is not done here; Redis 5 and newer"
            " send what scripts have changed (lua-replicate-commands yes)"
        )
    elif known is None:
        why = "the engine of the instance does not know it"
    elif not known.may_run:
        why = "the owner of an instance may not run it, or it changes no data"
    else:
        why = f"it has {count - 1} arguments, which the engine of the instance does not take"
    return f"the source sent the command {told}: {why}"


def _number(line: bytes, kind: bytes, most: int) -> int:
    digits = line[1:]
    if line[:1] != kind or not digits.isdigit():
        raise StreamError(UNUSUAL)
    number = int(digits)
    if number > most:
        what = "a command" if kind == b"*" else "a value"
        unit = "words" if kind == b"*" else "bytes"
        raise StreamError(
            f"the source sent {what} of {number} {unit}; the size of the instance has room for "
            f"{most}"
        )
    if kind == b"*" and not number:
        raise StreamError(UNUSUAL)
    return number


def _database(word: bytes | None) -> int:
    if word is None or not word.isdigit() or len(word) > LINE_BYTES_MAX:
        raise StreamError(f"{UNUSUAL}: SELECT of what is no number")
    if int(word) >= DATABASES:
        raise StreamError(
            f"the source wrote into its database {int(word)}; an instance has {DATABASES}, from 0"
        )
    return int(word)


def comment(size: int) -> bytes:
    """As long, and nothing to an engine that reads it in its log. Of 3 bytes or more."""
    whole, rest = divmod(size, NOTE_BYTES)
    if rest == 1:
        whole, rest = whole - 1, rest + NOTE_BYTES
    line = b"#" + b" " * (NOTE_BYTES - 2) + b"\n"
    last = b"#" + b" " * (rest - 2) + b"\n" if rest else b""
    return line * whole + last
