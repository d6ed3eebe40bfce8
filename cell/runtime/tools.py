"""Programs that are run to their end while somebody looks whether they may go on."""

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cell.runtime.confinement import Mount
from cell.runtime.process import kill_tree

LOOK_EVERY_S = 0.5
COMPLAINT_CHARACTERS = 2_000


@dataclass(frozen=True)
class ToolCommand:
    """A tool, and what it sees beside a site's folders. Secrets are in the environment alone."""

    argv: list[str]
    environment: dict[str, str] = field(repr=False)
    mounts: Sequence[Mount] = ()

    @property
    def name(self) -> str:
        return Path(self.argv[0]).name


class ToolError(Exception):
    """It ended with a failure; the text is the end of what it complained of."""


def run(
    command: list[str],
    content: bytes,
    timeout_s: float,
    going_on: Callable[[], None] | None,
    **given: Any,
) -> bytes:
    """What it writes. Raises ToolError, and TimeoutExpired as `subprocess.run`.

    What `going_on` raises now and then ends the program.
    """
    pipe = subprocess.PIPE
    given |= {"stdin": pipe, "stdout": pipe, "stderr": pipe}
    deadline = time.monotonic() + timeout_s
    with subprocess.Popen(command, **given) as process:  # noqa: S603 - a driver's own words
        first: bytes | None = content
        try:
            while True:
                left_s = max(0.0, deadline - time.monotonic())
                wait_s = left_s if going_on is None else min(LOOK_EVERY_S, left_s)
                try:
                    output, complaint = process.communicate(first, timeout=wait_s)
                except subprocess.TimeoutExpired:
                    if time.monotonic() >= deadline or going_on is None:
                        raise
                    first = None
                    going_on()
                else:
                    check(process.returncode, complaint)
                    return bytes(output)
        except BaseException:
            kill_tree(process.pid)
            raise


def check(code: int, complaint: bytes) -> None:
    """Raises ToolError for any exit status but 0."""
    if code:
        raise ToolError(complaint.decode(errors="replace").strip()[-COMPLAINT_CHARACTERS:])


def why(error: subprocess.TimeoutExpired | ToolError) -> str:
    """In words that follow the name of the program."""
    if isinstance(error, ToolError):
        return f"failed: {error}"
    return f"took longer than {error.timeout:.0f} s"
