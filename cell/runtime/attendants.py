"""Programs that run beside an engine for the cell, as long as the cell wants them.

They are confined as the engine is, and end with the cell, however that ends: nobody else would
bound what they write. They are in no group of the instance's, whose CPU and memory are its
owner's; so nothing is run that takes more than a little of both.
"""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cell.layout import Site
from cell.runtime.confinement import Mount, Sandbox
from cell.runtime.process import kill_tree

END_WITHIN_S = 5.0
# The program ends when what the shell reads does, which the cell alone has the other end of.
_ATTEND = (
    'ulimit -c 0; exec 3<&0; "$@" </dev/null 3<&- & program=$!; '
    '(read -r _ <&3; kill "$program") 2>/dev/null & watch=$!; exec 3<&-; '
    'wait "$program"; code=$?; kill "$watch" 2>/dev/null; exit "$code"'
)


class Attendant:
    """One that runs; asked for by whoever supervises it."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    async def end(self) -> None:
        """Asks it to end, and ends it where it does not; at once where it has ended."""
        if self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()
        try:
            await asyncio.to_thread(self._child.wait, END_WITHIN_S)
        except subprocess.TimeoutExpired:
            await asyncio.to_thread(kill_tree, self._child.pid)
            await asyncio.to_thread(self._child.wait)

    async def ended(self, within_s: float) -> bool:
        """Whether it has ended by itself by then."""
        try:
            await asyncio.to_thread(self._child.wait, within_s)
        except subprocess.TimeoutExpired:
            return False
        return True


class Attendants:
    def __init__(
        self,
        sandbox: Sandbox,
        environment: Callable[[Site, dict[str, str]], dict[str, str]],
    ) -> None:
        self._sandbox = sandbox
        self._environment = environment

    def start(
        self,
        site: Site,
        argv: Sequence[str],
        environment: Mapping[str, str],
        mounts: Sequence[Mount],
        log: Path,
    ) -> Attendant:
        """Blocks for a moment. It sees nothing of the instance's but `mounts`.

        What it complains of takes the place of what it complained of before.
        """
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            with self._sandbox.filter() as filter_fd, log.open("wb") as output:
                words = ["/bin/sh", "-c", _ATTEND, "sh", *argv]
                child = subprocess.Popen(  # noqa: S603 - a driver's own words
                    self._sandbox.command(site.uid, list(mounts), words, nowhere, filter_fd),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    env=self._environment(site, dict(environment)),
                    cwd=site.directory,
                    pass_fds=[each for each in (nowhere, filter_fd) if each >= 0],
                    start_new_session=True,
                )
        finally:
            os.close(nowhere)
        return Attendant(child)
