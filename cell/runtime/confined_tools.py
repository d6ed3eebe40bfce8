"""Tools that run beside an engine and speak through pipes: started, listened to, and ended."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cell.layout import Site
from cell.runtime import starting
from cell.runtime.confinement import Mount
from cell.runtime.engine_folders import INSIDE
from cell.runtime.host import Host
from cell.specification import Size

COMPLAINT_BYTES = 4096
LINE_BYTES_MAX = 64 * 1024
PIPE_BYTES = 1 << 20
# The first to end where memory is short; then into the groups.
_ENTER = (
    "ulimit -c 0; echo 900 > /proc/self/oom_score_adj 2>/dev/null; "
    'while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@"'
)


class ConfinedToolError(Exception):
    """A tool did not do what it was started for; the text is the end of what it complained of."""


@dataclass(frozen=True)
class Toolbox:
    """What tools of one instance are started with: where, and the limits they have together."""

    host: Host
    site: Site
    size: Size
    mounts: tuple[Mount, ...]

    async def start(
        self,
        argv: list[str],
        environment: dict[str, str],
        *,
        stdin: int = asyncio.subprocess.DEVNULL,
        stdout: int = asyncio.subprocess.DEVNULL,
        heard: Callable[[bytes], None] | None = None,
        mounts: tuple[Mount, ...] = (),
    ) -> "ConfinedTool":
        """`heard` is told each line of its complaints."""
        # The socket can be connected to there, and nothing be put in its place.
        run = Mount(self.site.run.outside.resolve(), INSIDE / "run", writable=False)
        given = (self.site, self.size, argv, environment, [*self.mounts, run, *mounts])
        with self.host.confined(*given) as command:
            words = ["/bin/sh", "-c", _ENTER, "sh", *map(str, command.groups), "--", *command.words]
            process = await starting.started(
                *words,
                stdin=stdin,
                stdout=stdout,
                stderr=asyncio.subprocess.PIPE,
                env=command.environment,
                cwd=self.site.directory,
                pass_fds=command.kept,
                start_new_session=True,
                limit=PIPE_BYTES,
            )
        return ConfinedTool(Path(argv[0]).name, process, heard)


class ConfinedTool:
    def __init__(
        self,
        name: str,
        process: asyncio.subprocess.Process,
        heard: Callable[[bytes], None] | None,
    ) -> None:
        self.name = name
        self.process = process
        self.complaint = b""
        self._heard = heard
        self._listening = asyncio.create_task(self._listen())

    @property
    def output(self) -> asyncio.StreamReader:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def input(self) -> asyncio.StreamWriter:
        assert self.process.stdin is not None
        return self.process.stdin

    async def ended(self) -> None:
        """Raises ConfinedToolError unless it ended well."""
        code = await self.process.wait()
        await self._listening
        if code:
            said = self.complaint.decode(errors="replace").strip()
            raise ConfinedToolError(said or f"{self.name} ended with status {code}")

    async def end(self) -> None:
        """At once, whatever it is doing."""
        await starting.end(self.process)
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self) -> None:
        """Complaints are read to their end, lest the tool waits, and kept from the last."""
        assert self.process.stderr is not None
        rest = b""
        while block := await self.process.stderr.read(LINE_BYTES_MAX):
            self.complaint = (self.complaint + block)[-COMPLAINT_BYTES:]
            if self._heard is not None:
                *lines, rest = (rest + block)[-2 * LINE_BYTES_MAX :].split(b"\n")
                for line in lines:
                    self._heard(line)
        if self._heard is not None and rest:
            self._heard(rest)
