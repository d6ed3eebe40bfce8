"""What holds an engine's process: each means, whether it is in force here, and why it is not."""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import structlog

from cell.runtime import filtered, seccomp
from cell.runtime.reach import passable

log = structlog.get_logger("cell.confinement")

PROBE_TIMEOUT_S = 10
NOBODY = 65_534
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/lib32", "/sbin")


@dataclass(frozen=True)
class Means:
    """`reason` says what is lost where it is not enforced."""

    enforced: bool
    reason: str | None = None


Confinement = dict[str, Means]


@dataclass(frozen=True)
class Mount:
    source: Path
    inside: Path
    writable: bool


@dataclass(frozen=True)
class ConfinedCommand:
    """`kept` are the descriptors that it is told of; `groups` are the files that it enters by."""

    words: list[str]
    environment: dict[str, str]
    kept: list[int]
    groups: list[Path]


class Sandbox:
    """Bubblewrap and the dropping of rights, found out once at start-up."""

    def __init__(
        self, *, confine: bool = True, packages: tuple[str, ...] = (), uid: int = NOBODY
    ) -> None:
        """`uid` is one of those that engines are to have."""
        self._root = os.geteuid() == 0
        self.packages = [_package(name) for name in packages]
        self._readable = _interpreter() + self.packages
        self.import_paths = sorted({str(path.parent) for path in self.packages})
        self._bwrap = shutil.which("bwrap") if confine else None
        # No engine runs as root, whatever else is left out.
        self._setpriv = shutil.which("setpriv") if confine or self._root else None
        self._uids = self._root and self._setpriv is not None and self._runs(self._uid_words(uid))
        self._unshare = self._find_unshare() if confine else None
        self._nested_refused = self._bwrap is not None and not self._root and self._refuses_nested()
        # First without the filter, so that each is found wanting for itself.
        self._filters = False
        refusal = self._probe(confine, uid)
        if refusal is not None:
            self._bwrap = None
        self._filters = confine and seccomp.known()
        unfiltered = self._probe_filter(confine, uid)
        self._filters = unfiltered is None
        self.means = self._judge(refusal, unfiltered)

    @property
    def hides_files(self) -> bool:
        """Whether engines see their folders at the mount's `inside` and not where they lie."""
        return self._bwrap is not None

    @property
    def reads_all(self) -> bool:
        """Whether engines can read the interpreter and our packages where they lie."""
        return self.hides_files or not self._uids or all(map(passable, self._readable))

    @contextmanager
    def filter(self) -> Iterator[int]:
        """A descriptor of the filter of system calls for one command; -1 where there is none."""
        if not self._filters:
            yield -1
            return
        with seccomp.opened() as descriptor:
            yield descriptor

    def command(
        self, uid: int, mounts: list[Mount], argv: list[str], info_fd: int, filter_fd: int = -1
    ) -> list[str]:
        """`argv`, confined. Bubblewrap writes the engine's pid to `info_fd`."""
        drop = self._drop(uid)
        if self._bwrap is None:
            # Without bubblewrap root can still take the network away.
            alone = [self._unshare, "--net", "--"] if self._unshare else []
            return [*alone, *_entering(filter_fd), *drop, *argv]
        rights = ["--cap-drop", "ALL"]
        if self._root:
            # Root makes the mounts, so that a folder only root may enter can be bound; the uid
            # is changed inside, and the rights to do so end with it.
            namespaces = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
            for needed in ("SETUID", "SETGID", "SETPCAP"):
                rights += ["--cap-add", f"CAP_{needed}"]
        else:
            namespaces = ["--unshare-all"]
            if self._nested_refused:
                namespaces += ["--unshare-user", "--disable-userns"]
        if filter_fd >= 0:
            rights += ["--seccomp", str(filter_fd)]
        return [
            *(self._bwrap, "--info-fd", str(info_fd), "--as-pid-1", "--new-session"),
            *(*namespaces, "--unshare-cgroup-try", "--hostname", "instance"),
            *(*self._files(mounts), *rights, "--", *drop, *argv),
        ]

    def _files(self, mounts: list[Mount]) -> list[str]:
        words = ["--proc", "/proc", "--dev", "/dev", "--size", str(64 * 2**20), "--tmpfs", "/tmp"]  # noqa: S108 - the sandbox's own
        for path in map(Path, SYSTEM):
            if path.is_symlink():
                words += ["--symlink", str(path.readlink()), str(path)]
            elif path.is_dir():
                words += ["--ro-bind", str(path), str(path)]
        # Folders made on the way to a mount would be for root only, as would shared memory be.
        words += ["--perms", "1777", "--tmpfs", "/dev/shm", "--perms", "0755", "--dir", "/etc"]  # noqa: S108 - the sandbox's own
        words += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
        binds = [Mount(path, path, writable=False) for path in self._readable] + mounts
        made: set[Path] = set(map(Path, SYSTEM))
        for mount in binds:
            for parent in reversed(mount.inside.parents[:-1]):
                if parent not in made and not any(above in made for above in parent.parents):
                    words += ["--perms", "0755", "--dir", str(parent)]
            bind = "--bind" if mount.writable else "--ro-bind"
            words += [bind, str(mount.source), str(mount.inside)]
        return [*words, "--remount-ro", "/"]

    def _drop(self, uid: int) -> list[str]:
        if self._setpriv is None:
            return []
        words = [self._setpriv, "--no-new-privs"]
        if self._root:
            words += ["--bounding-set=-all", "--inh-caps=-all"]
            if self._uids:
                return [*words, *self._uid_words(uid)[1:]]
        return [*words, "--"]

    def _uid_words(self, uid: int) -> list[str]:
        return [str(self._setpriv), f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]

    def _find_unshare(self) -> str | None:
        """Root takes the network away with it; in a container even root may not."""
        found = shutil.which("unshare") if self._root else None
        return found if found and self._runs([found, "--net", "--"]) else None

    def _probe(self, confine: bool, uid: int) -> str | None:
        """Runs nothing in a sandbox; the reason where that does not work."""
        if not confine:
            return "switched off by the cell's settings"
        if self._bwrap is None:
            return "bubblewrap is not installed"
        if self._setpriv is None and self._root:
            return "setpriv is not installed"
        return self._try(uid, [sys.executable, "-S", "-c", ""], "bubblewrap")

    def _probe_filter(self, confine: bool, uid: int) -> str | None:
        """The reason where system calls cannot be filtered."""
        if not confine:
            return "switched off by the cell's settings"
        if not self._filters:
            return f"the system-call filter does not support {platform.machine()}"
        return self._try(uid, ["true"], "the system-call filter")

    def _try(self, uid: int, argv: list[str], what: str) -> str | None:
        with self.filter() as filter_fd:
            words = self.command(uid, [], argv, 2, filter_fd)
            kept = () if filter_fd < 0 else (filter_fd,)
            try:
                done = subprocess.run(  # noqa: S603 - our own words
                    words, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False, pass_fds=kept
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return f"{what} cannot be run: {error}"
        if done.returncode == 0:
            return None
        # Bubblewrap describes its namespaces there too.
        said = re.sub(r"\{[^}]*\}", "", done.stderr.decode(errors="replace")).strip()
        return f"{what} is not permitted: {said[-200:] or f'exit status {done.returncode}'}"

    def _refuses_nested(self) -> bool:
        """Whether the sandbox can be kept from making user namespaces of its own."""
        words = ["--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--proc", "/proc"]
        return self._runs([str(self._bwrap), *words, "--"])

    @staticmethod
    def _runs(words: list[str]) -> bool:
        """False in a container of a user's own, say, where only some uids can be had."""
        try:
            done = subprocess.run(  # noqa: S603 - our own words
                [*words, "true"], capture_output=True, timeout=PROBE_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def _judge(self, refusal: str | None, unfiltered: str | None) -> Confinement:
        # Where no namespace can be had, there are still no sockets but those of files.
        alone = refusal is None or self._unshare is not None or unfiltered is None
        means = {
            "filesystem": Means(refusal is None, refusal),
            "network": Means(alone, refusal),
            "syscalls": Means(unfiltered is None, unfiltered),
            "uid": Means(self._uids),
        }
        if means["network"].enforced:
            means["network"] = Means(enforced=True)
        if not means["uid"].enforced:
            reason = "the cell does not run as root, so engines run as its own user"
            if self._root:
                reason = "separate uids for engines are not available here"
                if self._setpriv is None:
                    reason = "setpriv is not installed"
            means["uid"] = Means(enforced=False, reason=reason)
        return means


LOST = {
    "uid": "a compromised engine can access everything that the cell's user can",
    "filesystem": "a compromised engine can read the host's files",
    "network": "a compromised engine can reach the network",
    "syscalls": "a compromised engine can make any system call that its user may",
    "cpu": "an instance can use more CPU than its size",
    "cpuset": "a busy instance makes its neighbors wait for a CPU",
    "memory": "an instance can use more memory than its size",
    "pids": "an instance can start any number of processes",
}


def warn(confinement: Confinement) -> None:
    """Says once, at start-up, what is not in force and what that means."""
    for name, means in confinement.items():
        if not means.enforced:
            log.warning("cell.not_enforced", means=name, reason=means.reason, lost=LOST[name])


def _entering(filter_fd: int) -> list[str]:
    """The words that put what follows under the filter, where bubblewrap does not."""
    if filter_fd < 0:
        return []
    return [sys.executable, "-I", "-S", str(Path(filtered.__file__).resolve()), str(filter_fd)]


def _interpreter() -> list[Path]:
    """Where Python and its packages lie, outer folders first."""
    prefixes = {
        Path(p).resolve() for p in (sys.base_prefix, sys.prefix, sysconfig.get_path("stdlib"))
    }
    prefixes |= {Path(sys.prefix)}
    outside = [p for p in prefixes if not any(p.is_relative_to(s) for s in SYSTEM)]
    return sorted(p for p in outside if not any(p != q and p.is_relative_to(q) for q in outside))


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"package {name} is not installed")
    return Path(spec.submodule_search_locations[0]).resolve()
