"""The interactive client for instances whose engine's own client is not there."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import typer

from clients import private_files
from clients.cli import sql
from clients.cli.dialects import DUCKDB, ShellDialect
from clients.cli.output import Rows, plain
from clients.errors import ClientError
from clients.sessions import Result

PROMPT: Final = "{name}> "
CONTINUED: Final = "{name}. "
LEAVE: Final = frozenset({"\\q", "\\quit", "quit", "exit"})

Run = Callable[[str, list[str]], Result]


class Repl:
    """Reads statements, runs them, shows their rows; an error ends a statement, not the session."""

    def __init__(
        self,
        name: str,
        run: Run,
        read: Callable[[str], str] | None = None,
        dialect: ShellDialect = DUCKDB,
    ) -> None:
        self._name = plain(name)
        self._dialect = dialect
        self._run = run
        self._read = read or input
        self._timing = True

    def loop(self) -> None:
        left = ""
        while True:
            try:
                line = self._read((CONTINUED if left else PROMPT).format(name=self._name))
            except EOFError:
                break
            except KeyboardInterrupt:
                typer.echo("", err=True)
                left = ""
                continue
            word = line.strip().rstrip(";").rstrip()
            if not left and word.lower() in LEAVE:
                return
            if not left and word.startswith("\\"):
                self._command(word)
                continue
            done, left = self._dialect.split(f"{left}\n{line}" if left else line)
            for statement in done:
                self._show(statement)
        if left.strip():
            self._show(left)

    def _command(self, line: str) -> None:
        """Do a backslash command."""
        word, _, rest = line.partition(" ")
        name = rest.strip()
        asked = {
            "\\d": self._dialect.columns if name else self._dialect.tables,
            "\\dt": self._dialect.columns if name else self._dialect.tables,
            "\\l": self._dialect.databases,
        }.get(word)
        if asked:
            self._show(asked, [name] if name and word != "\\l" else [])
        elif word == "\\timing":
            self._timing = not self._timing
            typer.echo(f"timing is {'on' if self._timing else 'off'}", err=True)
        elif word == "\\?":
            typer.echo(self._dialect.help, err=True)
        else:
            typer.echo(f"unknown command {plain(word)}; \\? lists them", err=True)

    def _show(self, statement: str, params: list[str] | None = None) -> None:
        try:
            result = self._run(statement, params or [])
        except ClientError as error:
            typer.echo(f"error: {plain(str(error))}", err=True)
        except KeyboardInterrupt:
            typer.echo("interrupted: the statement was canceled", err=True)
        else:
            sql.show(result, Rows.table, timing=self._timing)


@contextlib.contextmanager
def line_editing(history: Path) -> Iterator[None]:
    """Give `input` editing and a history of its own, mode 0600, where there is a terminal."""
    try:
        import readline  # noqa: PLC0415  not on every platform, and of no use to a pipe
    except ImportError:
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    with contextlib.suppress(OSError):
        private_files.make_folder(history.parent)
        history.touch(mode=0o600, exist_ok=True)
        readline.read_history_file(history)
    readline.set_history_length(1000)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(history)
