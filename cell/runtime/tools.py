"""Programs that are run to their end while somebody looks whether they may go on."""

import subprocess
import time
from collections.abc import Callable
from typing import Any

LOOK_EVERY_S = 0.5


def run(
    command: list[str],
    content: bytes,
    timeout_s: float,
    going_on: Callable[[], None] | None,
    **given: Any,
) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run`; what `going_on` raises now and then ends the program."""
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
                    code = process.returncode
                    return subprocess.CompletedProcess(command, code, output, complaint)
        except BaseException:
            process.kill()
            raise
