"""The interactive client for instances that answer SQL over HTTPS."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import typer

from clients.cli import sql
from clients.cli.output import plain
from clients.endpoint import Result
from clients.errors import ClientError

PROMPT: Final = "{name}> "
CONTINUED: Final = "{name}. "
HELP: Final = """\\q            leave (so does Ctrl-D)
\\d            list the tables
\\d NAME       describe a table
\\timing       show or hide how long each statement took
\\?            this help
A statement ends with `;` and may take several lines. Ctrl-C drops what was typed."""
TABLES: Final = (
    "SELECT table_schema, table_name, table_type FROM information_schema.tables ORDER BY 1, 2"
)
COLUMNS: Final = (
    "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
    " WHERE table_name = ? ORDER BY ordinal_position"
)
# What may hold a `;` that does not end the statement: strings, names, comments.
OPAQUE: Final = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$", re.DOTALL
)
OPEN: Final = re.compile(r"'|\"|/\*|\$\w*\$")

Run = Callable[[str, list[str]], Result]


def statements(text: str) -> tuple[list[str], str]:
    """Answer the complete statements of the text, and what is left to be completed."""
    blanked = OPAQUE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    # Only what stands before an unclosed quote can end a statement.
    unclosed = OPEN.search(blanked)
    readable = blanked[: unclosed.start()] if unclosed else blanked
    done, start = [], 0
    for found in re.finditer(";", readable):
        done.append(text[start : found.start()].strip())
        start = found.end()
    return [one for one in done if one], text[start:].lstrip()


class Repl:
    """Reads statements, runs them, shows their rows; an error ends a statement, not the session."""

    def __init__(self, name: str, run: Run, read: Callable[[str], str] | None = None) -> None:
        self._name = name
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
            if not left and line.strip().startswith("\\"):
                if not self._command(line.strip()):
                    return
                continue
            done, left = statements(f"{left}\n{line}" if left else line)
            for statement in done:
                self._show(statement)
        if left.strip():
            self._show(left)

    def _command(self, line: str) -> bool:
        """Do a backslash command; answer whether to go on."""
        word, _, rest = line.partition(" ")
        if word in {"\\q", "\\quit"}:
            return False
        if word == "\\timing":
            self._timing = not self._timing
            typer.echo(f"timing is {'on' if self._timing else 'off'}", err=True)
        elif word == "\\d":
            name = rest.strip()
            self._show(COLUMNS if name else TABLES, [name] if name else [])
        else:
            typer.echo(
                HELP if word == "\\?" else f"unknown command {plain(word)}; \\? lists them",
                err=True,
            )
        return True

    def _show(self, statement: str, params: list[str] | None = None) -> None:
        try:
            result = self._run(statement, params or [])
        except ClientError as error:
            typer.echo(f"error: {plain(str(error))}", err=True)
        except KeyboardInterrupt:
            typer.echo("interrupted: the statement was given up", err=True)
        else:
            sql.show(result, sql.Rows.table, timing=self._timing)


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
    history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    history.touch(mode=0o600, exist_ok=True)
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(1000)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(history)
