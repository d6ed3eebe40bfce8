"""Starting the processes that run statements, and ending them."""

import asyncio
import contextlib
import os
import signal
import stat
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import structlog

from cell.console.table import TOO_MUCH, RunLimits
from cell.console.target import Target

log = structlog.get_logger("cell.console")

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-P", "-m", "cell.console.worker")
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
# Past its own limit a process has this long to tell the engine, on a machine that is busy.
GRACE_S = 15.0


class Run:
    """One statement, or several in one text. `stop` may be called at any time.

    `groups` are what its process enters, which bound the memory of all such processes together.
    """

    def __init__(self, target: Target, limits: RunLimits, groups: Sequence[Path] = ()) -> None:
        self._groups = [str(group) for group in groups]
        self._target = target
        self._limits = limits
        self._process: asyncio.subprocess.Process | None = None
        self._stopped = False

    async def answer(self, sql: str) -> dict[str, Any]:
        """The table, or `error` with the engine's words."""
        if not _is_socket(self._target.socket):
            return {"error": "the engine is not responding", "elapsed_ms": 0}
        told = {
            "target": asdict(self._target),
            "limits": asdict(self._limits),
            "groups": self._groups,
            "sql": sql,
        }
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # The log is the cell's own; what fails there is told in the answer.
            stderr=asyncio.subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        self._process = process
        if self._stopped:
            self.stop()
        try:
            async with asyncio.timeout(self._limits.seconds + GRACE_S):
                written, _ = await process.communicate(orjson.dumps(told))
            answer: dict[str, Any] = orjson.loads(written)
        except (TimeoutError, ValueError):
            # Killed, by us or for its memory; what the engine still does it ends by itself.
            if not self._stopped:
                log.warning("cell.console_worker_ended", status=process.returncode)
            return {"error": self._why(process.returncode), "elapsed_ms": 0}
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if (failed := answer.pop("failed", None)) is not None:
            log.warning("cell.console_worker_failed", reason=failed)
        return answer

    def _why(self, status: int | None) -> str:
        # Without a status it is not at its end, long past its time; the signals tell of time too.
        over = self._stopped or status in {None, -signal.SIGALRM, -signal.SIGXCPU}
        return "the statement was stopped" if over else TOO_MUCH

    def stop(self) -> None:
        self._stopped = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()


def _is_socket(path: str) -> bool:
    """The folder is the engine's own: a link it puts there must not lead to another's."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
