"""Running pg_dump, pg_restore and psql on an instance, bytes passed on as they come."""

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Final, Protocol

import typer

from clients import postgres_tools
from clients.cli import sql
from clients.cli.command_context import CommandContext
from clients.cli.output import plain
from clients.errors import ClientError, ConfigurationError, InstanceUnreachable
from clients.tunnel import PORT, PostgresTunnel

FAMILY: Final = ("postgres", "timescaledb")
CHUNK_BYTES: Final = 1 << 20
LINE_BYTES: Final = 1 << 16
TELL_EVERY_S: Final = 1.0
# What can be done for the others until `load` knows them.
INSTEAD: Final = {
    "mariadb": "use mariadb with what `menagerie credentials {name}` shows",
    "mysql": "use mysql with what `menagerie credentials {name}` shows",
}
BRANCH: Final = "branch the instance for a copy of it"


@dataclass(frozen=True)
class ConnectionTarget:
    """How a program reaches an instance: `server_major` tells which program fits."""

    name: str
    server_major: int
    environment: dict[str, str]

    def program(self, name: str) -> str:
        return str(postgres_tools.fitting(name, self.server_major).path)


@contextmanager
def opened_target(
    context: CommandContext, instance: str, *, store: bool
) -> Iterator[ConnectionTarget]:
    """Answer an instance of PostgreSQL to copy from or to, with a credential that it takes."""
    endpoint = sql.endpoint_of(context, instance)
    name, engine = endpoint.instance["name"], endpoint.instance["engine"]
    if engine not in FAMILY:
        instead = INSTEAD.get(engine, BRANCH).format(name=shlex.quote(name))
        raise ConfigurationError(f"load does not support {engine}; {instead}")
    with sql.Keeper(endpoint, store=store) as keeper:
        number = int(keeper.query("SHOW server_version_num").rows[0][0])
        credential = keeper.credential()
    with PostgresTunnel(credential, endpoint.authorities()) as tunnel:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        settings = {
            "PGHOST": str(tunnel.folder), "PGPORT": str(PORT), "PGUSER": credential.username,
            "PGPASSWORD": credential.password, "PGDATABASE": credential.database,
            "PGGSSENCMODE": "disable", "PGAPPNAME": "menagerie",
        }  # fmt: skip
        try:
            yield ConnectionTarget(name, number // 10_000, kept | settings)
        except ToolFailed as error:
            if tunnel.failure is not None:
                complaint = f"cannot reach {credential.host}: {tunnel.failure}"
                raise InstanceUnreachable(complaint) from error
            raise


class ToolFailed(ClientError):  # noqa: N818  the state is the name
    """A program of PostgreSQL ended with an error, which it has said on stderr."""


@contextmanager
def started(
    arguments: list[str], target: ConnectionTarget, **pipes: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program; raise ToolFailed unless it ends well. What breaks off ends it too."""
    said = subprocess.PIPE if sys.stderr.isatty() else None
    process = subprocess.Popen(arguments, env=target.environment, stderr=said, **pipes)  # type: ignore[call-overload]  # noqa: S603  found by its version
    telling = threading.Thread(target=_tell, args=(process.stderr,), daemon=True)
    telling.start()
    try:
        yield process
        if process.stdin is not None:
            process.stdin.close()
    except BrokenPipeError:
        # It ended before it had read everything, and has said why; or nobody reads what it writes.
        if process.stdin is None:
            process.terminate()
        else:
            with suppress(BrokenPipeError):
                process.stdin.close()
    except BaseException:
        process.terminate()
        raise
    finally:
        process.wait()
        telling.join()
    if process.returncode != 0:
        name = os.path.basename(arguments[0])  # noqa: PTH119  a word of a message
        raise ToolFailed(f"{name} ended with status {process.returncode}")


def _tell(said: IO[bytes] | None) -> None:
    """On a terminal, without the control characters of names and notices that a server sends."""
    while said is not None and (line := said.readline(LINE_BYTES)):
        typer.echo(plain(line.decode(errors="replace").rstrip("\r\n")), err=True)


class Progress:
    """Bytes so far, on a terminal's stderr; a line at the end in any case."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._started = self._told = time.monotonic()
        self._bytes = 0

    def count(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._told > TELL_EVERY_S:
            self._told = now
            typer.echo(f"\r{self._verb} {self._amount()} …", nl=False, err=True)

    def end(self, what: str) -> None:
        start = "\r" if sys.stderr.isatty() else ""
        elapsed_s = time.monotonic() - self._started
        typer.echo(
            f"{start}{self._verb} {self._amount()} in {elapsed_s:.1f} s: {plain(what)}", err=True
        )

    def _amount(self) -> str:
        size = float(self._bytes)
        for unit in ("B", "kB", "MB"):
            if size < 1000:  # noqa: PLR2004  a unit
                return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
            size /= 1000
        return f"{size:.1f} GB"


class ByteReader(Protocol):
    """Answers as many bytes as it likes of those that are asked for, and none at its end."""

    def read(self, size_bytes: int, /) -> bytes: ...


def copy(source: ByteReader, target: IO[bytes], progress: Progress) -> None:
    while content := source.read(CHUNK_BYTES):
        target.write(content)
        progress.count(len(content))
    target.flush()
