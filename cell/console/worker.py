"""The process of one run: takes what to run on its input, answers a table or an error, ends.

It is a process so that an answer of any size, or a client library in trouble, takes nothing from
the cell, and so that it can be ended whatever it does.
"""

import contextlib
import importlib
import json
import math
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from cell.console.table import CHARACTERS_MAX, TOO_MUCH, RunLimits, StatementError, Table
from cell.console.target import Target

# By the driver's protocol; loaded one at a time, for each takes its while.
DIALECTS = {"https": "duckdb", "postgres": "postgres", "mysql": "mysql"}
LEAVE_WITHIN_S = 3.0
FAILURE_CHARACTERS_MAX = 1_000


class Stopped(BaseException):
    """The run is to end now; no `except Exception` of a library holds it up."""


def main() -> None:
    told = json.load(sys.stdin)
    limits = RunLimits(**told["limits"])
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    # What a library does in C hears none of the signals below; this one ends it.
    cpu_s = math.ceil(limits.seconds + LEAVE_WITHIN_S)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    if not _enter(told["groups"]):
        resource.setrlimit(resource.RLIMIT_DATA, (limits.alone_bytes, limits.alone_bytes))
    signal.signal(signal.SIGALRM, _on_time)
    signal.signal(signal.SIGTERM, _on_stop)
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)
    started = time.monotonic()
    try:
        answer = _answer(Target(**told["target"]), told["sql"], limits)
    except Stopped as stopped:
        # It came while something else that had failed was answered.
        answer = _error(str(stopped), started)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # As few bytes as it can be, since the cell holds them: é and not \\u00e9.
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode(errors="replace"))
    sys.stdout.flush()


def _enter(groups: Sequence[str]) -> bool:
    """False where none bounds the memory of all runs together."""
    with contextlib.suppress(OSError):
        # Where the machine has no memory left, this ends before an engine or the cell.
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        for group in groups:
            Path(group).write_text("0")
    except OSError:
        return False
    return bool(groups)


def _answer(target: Target, sql: str, limits: RunLimits) -> dict[str, Any]:
    table = Table(limits)
    started = time.monotonic()
    try:
        dialect = importlib.import_module(f"cell.console.{DIALECTS[target.protocol]}")
        started = time.monotonic()
        dialect.run(target, sql, table)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except (StatementError, Stopped) as error:
        return _error(str(error), started)
    except MemoryError:
        return _error(TOO_MUCH, started)
    except (OSError, EOFError) as error:
        return _error(f"the engine is not responding: {error}", started)
    except Exception as error:  # noqa: BLE001 - a library in trouble, mostly as its engine ends
        return _failed(error, started)
    return table.document((time.monotonic() - started) * 1000)


def _failed(error: Exception, started: float) -> dict[str, Any]:
    """What the cell logs is `failed`; to tell whoever asked, it may have come of being stopped."""
    text, cause = "the engine is not responding", error.__context__
    while cause is not None:
        text = str(cause) if isinstance(cause, Stopped) else text
        cause = cause.__context__
    failed = f"{type(error).__name__}: {error}"[:FAILURE_CHARACTERS_MAX]
    return {**_error(text, started), "failed": failed}


def _error(text: str, started: float) -> dict[str, Any]:
    # The engine's words may be its user's, and as long as they like.
    return {
        "error": text[:CHARACTERS_MAX],
        "elapsed_ms": round((time.monotonic() - started) * 1000, 1),
    }


def _on_time(*_: object) -> NoReturn:
    _leave()
    raise Stopped("the statement was stopped because it exceeded the console's time limit")


def _on_stop(*_: object) -> NoReturn:
    _leave()
    raise Stopped("the statement was stopped")


def _leave() -> None:
    """What is left to do is to tell the engine; without an end to that, the process ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, LEAVE_WITHIN_S)


if __name__ == "__main__":
    main()
