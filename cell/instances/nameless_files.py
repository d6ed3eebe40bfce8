"""Files that an engine has removed and still holds: they take the disk, and no folder shows them.

MariaDB sorts in such. An engine that somebody has taken over could hide them: behind descriptors of
a single thread, in memory alone, or on their way through a socket.
"""

import contextlib
import ctypes
import os
import platform
import signal
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from cell.runtime import engine_files
from cell.runtime.engine_files import EnginePath

UNKNOWN_BYTES: Final = 1 << 50
"""What cannot be counted counts for: no engine does such a thing by itself."""
TABLES_MAX: Final = 16
"""Tables of descriptors of one process; the threads of an engine share one."""
_KCMP: Final = {"x86_64": 312, "aarch64": 272}.get(platform.machine())
_KCMP_FILES: Final = 2
_libc = ctypes.CDLL(None, use_errno=True)


class _HiddenError(Exception):
    """There is something that cannot be counted."""


def count(pids: Iterable[int], data: EnginePath) -> int:
    """Bytes on the disk of `data`; a file that several of the processes hold counts once."""
    if (folder := engine_files.find(data)) is None:
        return 0
    sizes: dict[int, int] = {}
    for pid in pids:
        try:
            if _outlives_first(pid):
                return UNKNOWN_BYTES
            threads = _tables(pid)
            mapped, program = _mapped(pid, threads[0], folder), _program(pid, folder)
            for found in (*_opened(threads), *mapped, *program):
                if found.st_nlink == 0 and found.st_dev == folder.st_dev:
                    sizes[found.st_ino] = found.st_blocks * 512
        except _HiddenError:
            return UNKNOWN_BYTES
        except OSError:
            continue  # it has ended meanwhile, or may not be inspected
    return sum(sizes.values())


def _tables(pid: int) -> list[Path]:
    """A thread for each table of descriptors: nearly always the first, for all of them."""
    found: list[Path] = []
    for thread in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
        if not any(_share(thread.name, known.name) for known in found):
            found.append(thread)
        if len(found) > TABLES_MAX:
            raise _HiddenError
    return found


def _share(one: str, other: str) -> bool:
    """Whether two threads have the same descriptors; True where the kernel does not say."""
    return _KCMP is None or _libc.syscall(_KCMP, int(one), int(other), _KCMP_FILES, 0, 0) <= 0


def _opened(threads: Iterable[Path]) -> Iterator[os.stat_result]:
    """Regular files."""
    for thread in threads:
        with contextlib.suppress(OSError), os.scandir(thread / "fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    found = entry.stat()
                    if stat.S_ISREG(found.st_mode):
                        yield found
                    elif stat.S_ISSOCK(found.st_mode):
                        _refuse_passing(thread / "fdinfo" / entry.name)


def _refuse_passing(information: Path) -> None:
    """A socket in which descriptors wait for whoever reads it."""
    for line in information.read_bytes().splitlines():
        if line.startswith(b"scm_fds:") and int(line.split()[1]) > 0:
            raise _HiddenError


def _mapped(pid: int, thread: Path, folder: os.stat_result) -> Iterator[os.stat_result]:
    """Files of the folder's device and user that were removed and are in memory."""
    device = folder.st_dev
    wanted = f" {os.major(device):02x}:{os.minor(device):02x} ".encode()
    for line in (thread / "maps").read_bytes().splitlines():
        if line.endswith(b" (deleted)") and wanted in line:
            place = line.partition(b" ")[0].decode()
            try:
                found = Path(f"/proc/{pid}/map_files/{place}").stat()
                # Not the programs and libraries that somebody has replaced on the host.
                if found.st_uid == folder.st_uid:
                    yield found
            except OSError:
                continue


def _program(pid: int, folder: os.stat_result) -> Iterator[os.stat_result]:
    """The file that it runs, which need not be in its memory any more."""
    found = Path(f"/proc/{pid}/exe").stat()
    if found.st_uid == folder.st_uid:
        yield found


def _outlives_first(pid: int) -> bool:
    """Whether threads go on whose first one has ended: of those, most is not shown."""
    state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    return state in "ZX" and any(map(_goes_on, Path(f"/proc/{pid}/task").iterdir()))


def _goes_on(thread: Path) -> bool:
    """Not one that ends with its process, and only has to be given the CPU for that."""
    with contextlib.suppress(OSError):
        told = (thread / "status").read_text(errors="replace")
        pending = int(told.partition("\nSigPnd:")[2].split()[0], 16)
        return "\nVmSize:" in told and not pending >> (signal.SIGKILL - 1) & 1
    return False
