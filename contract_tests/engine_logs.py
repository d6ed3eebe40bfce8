"""What the report of a failed test tells of its engines: their logs and the kernel's messages."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

TAIL_CHARACTERS: Final = 3_000
# Of a shared cell with dozens of instances, those last written to.
LOGS_MAX: Final = 4
Kills = Callable[[], dict[str, int]]


@dataclass(frozen=True)
class Watched:
    """A place with logs, and how often the kernel ended processes there for want of memory."""

    logs: Callable[[], list[Path]]
    memory_kills: Kills


_watched: Final[list[Watched]] = []


@contextlib.contextmanager
def watched(logs: Callable[[], list[Path]], memory_kills: Kills) -> Iterator[None]:
    """Meanwhile, a test that fails tells of them."""
    place = Watched(logs, memory_kills)
    _watched.append(place)
    try:
        yield
    finally:
        _watched.remove(place)


@pytest.hookimpl(wrapper=True, specname="pytest_runtest_makereport")
def pytest_report_engine_logs(call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if report.failed and _watched:
        for place in _watched:
            report.sections.extend(_told(place, call.start))
        report.sections.append(("the kernel's messages", _kernel_messages()))
    return report


def _told(place: Watched, since: float) -> Iterator[tuple[str, str]]:
    for path in _written_since(place.logs(), since):
        with contextlib.suppress(OSError):
            yield f"end of {path}", path.read_text(errors="replace")[-TAIL_CHARACTERS:]
    with contextlib.suppress(Exception):
        if kills := {name: count for name, count in place.memory_kills().items() if count}:
            yield "ended for want of memory", "\n".join(f"{n}: {kills[n]}" for n in kills)


def _written_since(paths: list[Path], since: float) -> list[Path]:
    """The last ones first; an engine may have been silent since before the test, which is told."""
    found: list[tuple[float, Path]] = []
    for path in paths:
        with contextlib.suppress(OSError):
            found.append((path.stat().st_mtime, path))
    found.sort(reverse=True)
    recent = [path for changed, path in found if changed >= since - 1]
    return (recent or [path for _, path in found[:1]])[:LOGS_MAX]


def _kernel_messages() -> str:
    """A crash of a process, or its end for want of memory, is noted there."""
    if shutil.which("dmesg") is None:
        return "there is no dmesg here"
    done = subprocess.run(["dmesg"], capture_output=True, text=True, check=False, timeout=10)
    up = f"{time.clock_gettime(time.CLOCK_BOOTTIME):.0f} s after the machine's start"
    return f"read {up}\n{(done.stdout or done.stderr)[-TAIL_CHARACTERS // 2 :]}"
