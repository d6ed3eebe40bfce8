"""What every engine's driver can do. The contract suite holds each of them to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol, runtime_checkable

from cell.engines.contents import Contents
from cell.engines.wal_sources import WalNeed
from cell.layout import Site
from cell.runtime.engine_files import EnginePath
from cell.runtime.host import Host
from cell.runtime.process import Process
from cell.runtime.tools import ToolCommand
from cell.specification import Size, Spec


class EngineError(Exception):
    """The engine did not do what was asked; the text is for the owner and holds no secret."""


class FinalError(EngineError):
    """Trying again does not help."""


class NewLoginError(EngineError):
    """The newest login does not work, so that the former stay: else nobody could get in."""


@dataclass(frozen=True)
class EngineRefusal:
    """Why an engine cannot be run here, and what whoever runs the cell can do about it."""

    reason: str
    remedy: str


class Health(Enum):
    """How an engine that runs is found.

    WELL: it answers, be it with a refusal. SILENT: it says nothing in time, as a busy one may for
    a while. STUCK: it says itself that it will not go on. FULL: it has no room for the cell itself,
    which has places of its own, so that its credentials cannot be changed.
    CHANGED: it answers, and does not know the password of a login of ours any more.
    """

    WELL = "well"
    SILENT = "it does not respond to logins"
    STUCK = "a script that has written cannot be stopped"
    CHANGED = "the password of its login is different"
    FULL = "it has no thread, connection or memory left for the cell's own login"


@dataclass(frozen=True)
class Login:
    username: str
    password: str

    def __repr__(self) -> str:
        # A repr ends up in logs.
        return f"<Login {self.username}>"


@dataclass(frozen=True)
class Metrics:
    """`notice` is what the owner should know while the engine runs."""

    storage_bytes: int
    memory_bytes: int
    cpu_s: float
    notice: str | None = None


def measured(
    host: Host, process: Process | None, storage_bytes: int, notice: str | None = None
) -> Metrics:
    """What an engine uses now; nothing but its storage where it does not run."""
    if process is None:
        return Metrics(storage_bytes, 0, 0.0)
    usage = host.usage(process)
    return Metrics(storage_bytes, usage.memory_bytes, usage.cpu_s, notice)


@dataclass(frozen=True)
class Snapshot:
    """A copy the engine can be restored from; `sha256` is over its files in order of name."""

    size_bytes: int
    sha256: str
    wal: WalNeed | None = None


class Driver(Protocol):
    """One engine family. A driver keeps no state of instances: all it needs is handed in.

    Everything may be asked twice: the cell repeats what it does not know to have happened.
    """

    engine: str
    source: str
    """Where the engine comes from, for people."""
    protocol: str
    """What the gateway speaks to it: https, postgres, mysql, resp, mongodb or clickhouse."""
    missing: EngineRefusal
    """Told where there are no versions."""

    def versions(self) -> tuple[str, ...]:
        """What can be run here, newest first; empty where nothing can."""

    def username(self, generation: int) -> str:
        """Who logs in with the credential of that generation, counted from 1.

        The same for all where the engine knows several passwords of one user.
        """

    def socket(self, site: Site) -> EnginePath:
        """Where the engine listens, below `site.run`; the gateway follows no link there."""
        return site.socket

    async def provision(self, site: Site, spec: Spec) -> None:
        """Everything before a start; the site's folders are there, empty or not.

        What a killed engine left and its next start would remove goes now: the storage is measured
        before that start.
        """

    async def start(self, site: Site, spec: Spec) -> Process:
        """Starts the engine; it may not take logins yet."""

    async def stop(self, site: Site, process: Process, timeout_s: float) -> None:
        """Ends the engine with everything committed on disk."""

    async def ready(self, site: Site, login: Login) -> bool:
        """Whether a real login works now."""

    async def health(self, site: Site, login: Login) -> Health:
        """Whether an engine that was ready still goes on, and is no more than busy or full.

        Answers within some seconds, and stops what can be stopped and keeps everybody waiting.
        """

    async def set_credentials(self, site: Site, logins: Sequence[Login]) -> str | None:
        """From now on these logins work and no other, running or not.

        An engine that is kept from taking them, for whatever reason that its sessions can bring
        about, is ended, and takes them when it starts: the answer says why. Nobody's sessions
        outlive his credential. NewLoginError where a login does not work, and nothing changes.
        """

    async def resize(self, site: Site, process: Process, size: Size) -> bool:
        """Applies the size to a running engine; False where it must be started anew for that."""

    async def upgrade(self, site: Site, former: Spec, spec: Spec) -> None:
        """Brings the data of an engine that does not run, if there is any, to another version.

        Raises EngineError, with the data as it was, where that cannot be done.
        """

    async def snapshot(
        self, site: Site, process: Process | None, login: Login, target: Path
    ) -> Snapshot:
        """Copies everything committed into the new folder `target`, running or not.

        Another site may be restored from it: that is what a branch is.
        """

    async def restore(self, site: Site, source: Path) -> None:
        """Puts a snapshot in place of the data of an engine that does not run."""

    async def examine(self, site: Site, login: Login) -> Contents:
        """Reads all data of an engine that runs; EngineError where it cannot.

        None of its owner's code runs with more rights than the owner's.
        """

    async def erase(self, site: Site) -> None:
        """Removes what the engine keeps outside its site; the cell removes the site itself."""

    def metrics(self, site: Site, process: Process | None) -> Metrics: ...

    def uri(self, login: Login, host: str, port: int) -> str:
        """What a client needs to connect, in one line."""


@runtime_checkable
class ChecksFiles(Protocol):
    """A driver whose engine's files have checksums."""

    async def check_files(self, site: Site) -> None:
        """Of an engine that does not run, and was ended in order. EngineError where one differs."""


@runtime_checkable
class DumpsByTool(Protocol):
    """A driver whose engine comes with a tool that writes a dump of one database."""

    dump_suffix: str
    """Of the name of a file with one."""

    async def dump_command(self, site: Site, login: Login, database: str) -> ToolCommand:
        """What the tool says is the dump. It logs in as the owner, whose code may run.

        EngineError where the tool is missing.
        """


@runtime_checkable
class DumpsToFile(Protocol):
    """A driver whose engine writes all that there is into one file."""

    dump_suffix: str

    async def dump(self, site: Site, process: Process, login: Login, folder: Path) -> Path:
        """Of an engine that runs, into the new folder; answers the file."""


@runtime_checkable
class BeginsWithFile(Protocol):
    """A driver whose engine can begin with a file of its kind that comes from elsewhere."""

    file_format: str
    """What migrations call such a file."""

    def recognize(self, head: bytes) -> str | None:
        """By its first kilobyte: what wrote it, as far as it says; None if it is another file."""

    def prepare_file(self, file: Path, folder: Path, *, trusted: bool) -> None:
        """Makes the new `folder`, as of a snapshot, of a file that goes; checked, if untrusted."""


@runtime_checkable
class HasExtensions(Protocol):
    """A driver whose engine's owners may add to it what its installation has."""

    def extensions(self) -> dict[str, list[str]]:
        """By version, the names of what an owner can create by himself."""


@runtime_checkable
class ReportsLoading(Protocol):
    """A driver whose engine says that it is reading its data, before it takes logins."""

    async def is_loading(self, site: Site) -> bool: ...


@runtime_checkable
class ExplainsSlowStarts(Protocol):
    """A driver whose engine's start an owner can make long."""

    slow_start: str
    """For the owner: by what, and what helps."""


@runtime_checkable
class StartsWithoutCode(Protocol):
    """A driver whose engine runs its owner's code at each start, and can start without it."""

    code: str
    """For the owner: what would be missing."""

    async def leave_out(self, site: Site) -> Callable[[], None] | None:
        """Of the data of an engine that does not run; how to put it back, None if it has none."""


@runtime_checkable
class ExplainsFailedStarts(Protocol):
    """A driver whose engine says why it did not start."""

    def why_not_started(self, site: Site, process: Process) -> str | None:
        """For the owner; None where it said nothing."""


def why_not_started(driver: Driver, site: Site, process: Process) -> str:
    said = (
        driver.why_not_started(site, process) if isinstance(driver, ExplainsFailedStarts) else None
    )
    return said or f"{process.exit_reason}; see the instance's logs"


@runtime_checkable
class ChecksUpgrades(Protocol):
    """A driver that tells before its engine is stopped that it could not be upgraded."""

    async def check_upgrade(self, site: Site, spec: Spec) -> None:
        """Raises EngineError, which says what is in the way. The engine is running."""


@runtime_checkable
class EndsSessions(Protocol):
    """A driver whose engine works on for a client that has gone."""

    async def end_sessions(self, site: Site, numbers: Sequence[int]) -> int:
        """Ends those of the owner's sessions with the engine's own numbers; how many there were."""


@runtime_checkable
class RestoresLogins(Protocol):
    """A driver whose engine lets each user change their own password, and so any code of theirs."""

    def proofs(self, site: Site) -> dict[str, str]:
        """By user name, what the gateway tells by whether the engine has the password of ours."""

    async def restore_logins(self, site: Site) -> list[str]:
        """Gives the logins that were changed the passwords of ours again; answers which."""


@runtime_checkable
class FlushesWrites(Protocol):
    """A driver whose engine leaves what it wrote in the system's cache.

    There the engine's own end cannot lose it, but a power cut would.
    """

    async def flush(self, site: Site) -> None:
        """Everything written until now is on disk; called about once a second while it runs."""


@dataclass(frozen=True)
class Room:
    """How much storage an instance has and uses; it is stopped above `ceiling_bytes`."""

    used_bytes: int
    limit_bytes: int
    ceiling_bytes: int


@runtime_checkable
class HoldsWrites(Protocol):
    """A driver that does something about who writes at the limit."""

    async def hold_writes(self, site: Site, room: Room) -> None:
        """Keeps it below its limit; called about once a second while logins work."""


@runtime_checkable
class CountsStatements(Protocol):
    """A driver whose engine tells how many statements it has run since it started."""

    async def statements(self, site: Site, login: Login) -> int | None:
        """Transactions, queries or commands, as the engine counts; None where it does not say.

        It is the owner's engine that says so.
        """


@runtime_checkable
class RefusesWrites(Protocol):
    """A driver whose engine can be started above its ceiling, so that data is removed."""

    lent_share: float
    """Times the ceiling, as long as it is so started; less than a snapshot may take."""

    def refuse_writes(self, site: Site) -> None:
        """Of an engine that does not run: its next start lets nobody add data as usual.

        Until there is room.
        """


@runtime_checkable
class RewritesLog(Protocol):
    """A driver whose engine reads a log when it starts, however it ended.

    That may take more memory than its data does, and not be given back.
    """

    async def rewrite_log(self, site: Site, size: Size, room: Room) -> bool:
        """Makes the log as short as the data, of an engine that runs and that nobody else uses.

        False where its next start would need no less: the log is that short already, or the data
        alone takes more memory than the size has. EngineError where it cannot be done, as for want
        of room for it.
        """


@runtime_checkable
class WritesAnew(Protocol):
    """A driver whose engine deletes by writing what stays once more, before it frees the rest."""

    ceiling_share: float
    """Times the ceiling that others have."""


@runtime_checkable
class FinishesUpgrades(Protocol):
    """A driver whose upgrades leave work that waits until the engine runs under its limits."""

    async def finish(self, site: Site) -> None:
        """In the background, once a login works; ended with the engine."""
