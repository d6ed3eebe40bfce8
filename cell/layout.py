"""Where everything of a cell lies: its home, the folders of instances, the sockets."""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cell.runtime import engine_files
from cell.runtime.engine_files import EnginePath
from cell.runtime.reach import passable

# The kernel takes 107 bytes for the path of a unix socket; the rest is room for its name.
SOCKET_DIRECTORY_BYTES_MAX = 60
# Others may pass through but not look around: engines run under uids of their own.
PASSABLE = 0o711
LOOK_AGAIN_S = 0.05
# Where folders lie that engines must enter, if the home is below a folder which is closed to them.
# The last is the volume of our image, which holds the home and nothing else.
OUTSIDE = ("/var/lib", "/srv", "/opt", "/var/lib/menagerie")
OUTSIDE_NAME = "menagerie-engines"
MOVED = ("instances", "engines", "templates")


class HomeTakenError(Exception):
    """Another cell runs in this home; two would end each other's engines."""


class ClosedError(Exception):
    """Nothing can be made where the uids of engines can go."""


@dataclass(frozen=True)
class Layout:
    """The folders of one cell. Sockets lie outside `home` where its path is too long for them.

    `open` holds what engines enter: the home itself, or what its link `outside` leads to.
    """

    home: Path
    sockets: Path
    open: Path

    @classmethod
    def make(cls, home: Path) -> Self:
        """Creates what is missing."""
        home = home.resolve()
        link = home / "outside"
        opened = link.readlink() if link.is_symlink() else home
        if link.is_symlink() and not opened.exists():
            raise FileNotFoundError(
                f"{opened} is missing, but {link} says that instances are stored there"
            )
        for directory in (home, home / "run", opened / "run", opened / "instances"):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(PASSABLE)
        for written_by_gateway in ("activity", "egress", "sent"):
            (home / written_by_gateway).mkdir(mode=0o700, exist_ok=True)
        sockets = opened / "run"
        if len(os.fsencode(sockets)) > SOCKET_DIRECTORY_BYTES_MAX:
            sockets = _short_directory(home)
        layout = cls(home, sockets, opened)
        if layout.socket != layout.public_socket:
            layout.public_socket.unlink(missing_ok=True)
            layout.public_socket.symlink_to(layout.socket)
        return layout

    def opened(self) -> "Layout":
        """The same with all that engines enter where any uid can go; ClosedError else.

        Nothing of it may be in use. A move that was broken off is brought to its end.
        """
        if self.open == self.home:
            if passable(self.home):
                return self
            (self.home / "outside").symlink_to(_outside(self.home))
        layout = Layout.make(self.home)
        for name in MOVED:
            _move(self.home / name, layout.open / name)
        return layout

    def claim(self, wait_s: float) -> int:
        """Holds the home for this process as long as the descriptor is open; HomeTakenError else.

        A cell that is just ending is waited for.
        """
        lock = os.open(self.home / "cell.lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(lock)
                    raise HomeTakenError(f"another cell is running in {self.home}") from None
                time.sleep(LOOK_AGAIN_S)
            else:
                return lock

    def remove_sockets(self) -> None:
        """What lies outside the home; nothing listens or stays there once the cell has stopped."""
        if self.sockets.parent not in (self.home, self.open):
            shutil.rmtree(self.sockets, ignore_errors=True)

    @property
    def database(self) -> Path:
        return self.home / "cell.db"

    @property
    def seal_key(self) -> Path:
        return self.home / "seal.key"

    @property
    def socket(self) -> Path:
        return self.sockets / "cell.sock"

    @property
    def public_socket(self) -> Path:
        """The path that others are told, which may be a link."""
        return self.home / "run" / "cell.sock"

    @property
    def gateway_token(self) -> Path:
        return self.home / "run" / "gateway.token"

    @property
    def routes(self) -> Path:
        return self.home / "routes.json"

    @property
    def activity(self) -> Path:
        return self.home / "activity"

    @property
    def egress(self) -> Path:
        return self.home / "egress"

    @property
    def sent(self) -> Path:
        return self.home / "sent"

    @property
    def instances(self) -> Path:
        return self.open / "instances"

    def site(self, instance_id: str, uid: int) -> "Site":
        directory = self.instances / instance_id
        run = self.sockets / instance_id.rpartition("_")[2].lower()
        return Site(instance_id, uid, directory, EnginePath(run))


@dataclass(frozen=True)
class Site:
    """The folders of one instance; `uid` owns `data` and `run`, the cell all else."""

    instance_id: str
    uid: int
    directory: Path
    run: EnginePath

    @property
    def data(self) -> EnginePath:
        return EnginePath(self.directory / "data")

    @property
    def configuration(self) -> Path:
        """What the engine reads and must not write."""
        return self.directory / "conf"

    @property
    def log(self) -> Path:
        return self.directory / "log" / "engine.log"

    @property
    def snapshots(self) -> Path:
        return self.directory / "snapshots"

    @property
    def process(self) -> Path:
        """What a later cell must know to adopt the engine."""
        return self.directory / "process.json"

    @property
    def socket(self) -> EnginePath:
        return self.run / "engine.sock"

    def make(self, owner: int | None) -> None:
        """Creates the folders; `owner` is whom the engine runs as, None where that is the cell."""
        self.directory.mkdir(exist_ok=True)
        self.directory.chmod(PASSABLE)
        for cells in (self.log.parent, self.snapshots):
            cells.mkdir(mode=0o700, exist_ok=True)
        for path, mode in (
            (self.configuration, 0o750),
            # Theirs, but they lie in folders of the cell's, where nobody else puts a link.
            (self.data.outside, 0o700),
            (self.run.outside, 0o700),
        ):
            path.mkdir(exist_ok=True)
            path.chmod(mode)
        if os.geteuid() == 0:
            if owner is not None:
                os.chown(self.configuration, 0, owner)
            for place in (self.data, self.run):
                _give(place, os.geteuid() if owner is None else owner)

    def empty_run(self) -> None:
        """Removes what an engine left beside its sockets; only while none runs."""
        engine_files.empty(self.run)


def _give(place: EnginePath, owner: int) -> None:
    """What lies inside too, where engines ran as somebody else until now."""
    found = engine_files.find(place)
    if found is not None and found.st_uid != owner:
        engine_files.give(place, owner)


def _outside(home: Path) -> Path:
    """A new folder where any uid can go, in the home's file system.

    So what is moved moves at once, and is kept as the home is: both in a volume, or neither.
    """
    for base in map(Path, OUTSIDE):
        with contextlib.suppress(OSError):
            if base.stat().st_dev == home.stat().st_dev and passable(base):
                (base / OUTSIDE_NAME).mkdir(mode=PASSABLE, exist_ok=True)
                (base / OUTSIDE_NAME).chmod(PASSABLE)
                made = Path(tempfile.mkdtemp(prefix="", dir=base / OUTSIDE_NAME))
                made.chmod(PASSABLE)
                return made
    raise ClosedError(
        f"other users cannot enter {home}, and none of {', '.join(OUTSIDE)} is in its file system"
    )


def _move(source: Path, target: Path) -> None:
    """Each of what is in a folder, and a link in its place; both are in one file system."""
    if source.is_symlink():
        return
    target.mkdir(mode=PASSABLE, exist_ok=True)
    target.chmod(PASSABLE)
    if source.exists():
        for path in source.iterdir():
            path.rename(target / path.name)
        source.rmdir()
    source.symlink_to(target)


def write_atomically(path: Path, content: bytes, mode: int = 0o600, gid: int = -1) -> None:
    """Readers see the old content or the new, and after a power cut one of them too."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if gid >= 0 and os.geteuid() == 0:
            os.fchown(descriptor, -1, gid)
        os.fchmod(descriptor, mode)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)


def sync_folder(path: Path) -> None:
    """What was made, renamed or removed in it is so after a power cut too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _short_directory(home: Path) -> Path:
    """A folder in the temporary one, remembered in the home, so that it is the same each time.

    Nobody can foresee its name, so nobody can be there first and keep the cell from starting.
    """
    link = home / "sockets"
    if link.is_symlink() and _is_ours(known := link.readlink()):
        return known
    made = Path(tempfile.mkdtemp(prefix="cell-"))
    if len(os.fsencode(made)) > SOCKET_DIRECTORY_BYTES_MAX:
        made.rmdir()
        made = Path(tempfile.mkdtemp(prefix="cell-", dir="/tmp"))
    made.chmod(PASSABLE)
    link.unlink(missing_ok=True)
    link.symlink_to(made)
    return made


def _is_ours(directory: Path) -> bool:
    """The temporary folder may have been emptied since, and another user may have been there."""
    with contextlib.suppress(FileNotFoundError):
        found = directory.lstat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return False
