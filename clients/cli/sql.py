"""Statements from the command line: whose credential, which session, how rows are shown."""

import csv
import io
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import typer

from clients.cli import native, output
from clients.cli.command_context import CommandContext
from clients.cli.output import Rows
from clients.closing import Closing
from clients.credentials import Credential, CredentialFile
from clients.endpoint import Endpoint
from clients.errors import ClientError, ConfigurationError, QueryFailed
from clients.sessions import ENGINES, Result, Session

UNAUTHORIZED = 401

Answered = TypeVar("Answered")


class Keeper(Closing):
    """One instance with its credential, which is kept in the file unless told otherwise."""

    def __init__(
        self, endpoint: Endpoint, *, store: bool, file: CredentialFile | None = None
    ) -> None:
        self.endpoint = endpoint
        self._store = store
        self._file = file or CredentialFile()
        self._base_url = endpoint.client.base_url
        self._session: Session | None = None
        self._is_new = False

    def credential(self) -> Credential:
        """Answer the kept credential, or reveal it."""
        kept = self._file.get(self._base_url, self.endpoint.instance["id"]) if self._store else None
        return kept or self.renewed()

    def renewed(self) -> Credential:
        """Reveal the credential anew; the kept one is forgotten even where that fails."""
        if self._store:
            with as_far_as_possible():
                self._file.forget(self._base_url, self.endpoint.instance["id"])
        credential = self.endpoint.reveal()
        self._is_new = True
        if self._store:
            with as_far_as_possible():
                self._file.keep(self._base_url, self.endpoint.instance["id"], credential)
        return credential

    def accepted(self) -> Credential:
        """Answer a credential the instance takes: a kept one is tried, and renewed if refused.

        For clients that could not ask for another themselves.
        """
        kept = self.credential()
        if self.endpoint.instance["engine"] in ENGINES and not self._is_new:
            with self.endpoint.session(kept) as session:
                try:
                    session.version()
                except QueryFailed as error:
                    if error.status == UNAUTHORIZED:
                        return self.renewed()
                except ClientError:
                    # The client itself will say what is wrong.
                    pass
        return kept

    def version(self) -> str:
        """Answer what runs there; with this the credential is known to be taken."""
        return self._tried(lambda session: session.version())

    def query(self, sql: str, params: Sequence[Any] | None = None) -> Result:
        """Run a statement; once more with a fresh credential where a kept one is refused."""
        return self._tried(lambda session: session.query(sql, params))

    def _tried(self, ask: Callable[[Session], Answered]) -> Answered:
        fresh = self._session is None
        session = self._session = self._session or self.endpoint.session(self.credential())
        try:
            return ask(session)
        except QueryFailed as error:
            if error.status != UNAUTHORIZED or (fresh and not self._store):
                raise
        session.close()
        self._session = self.endpoint.session(self.renewed())
        return ask(self._session)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


@contextmanager
def as_far_as_possible() -> Iterator[None]:
    """What cannot be stored, on a full disk, is only not stored."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        typer.echo(output.plain(f"warning: cannot store the credential: {why}"), err=True)


def endpoint_of(context: CommandContext, name_or_id: str) -> Endpoint:
    """Answer the instance's endpoint, whatever its engine."""
    return Endpoint(context.client, context.instance(name_or_id), org=context.org())


def require_session(endpoint: Endpoint) -> None:
    engine = endpoint.instance["engine"]
    if engine not in ENGINES:
        name = shlex.quote(endpoint.instance["name"])
        word = "connect" if engine in native.PROGRAMS else "credentials"
        raise ConfigurationError(
            f"`query` does not support {engine}; use `menagerie {word} {name}`"
        )


def parameter(typed: str) -> Any:
    """Answer a --param as JSON where it is JSON, else as text."""
    try:
        return json.loads(typed)
    except ValueError:
        return typed


def show(result: Result, form: Rows, *, timing: bool = True) -> None:
    """Write the rows to stdout, and how many there are to stderr."""
    if form is Rows.json:
        output.show_json(result.document())
    elif form is Rows.csv:
        rows = as_csv(result)
        typer.echo(output.plain(rows) if sys.stdout.isatty() else rows, nl=False)
    elif result.columns:
        cells = [[text(value) for value in row] for row in result.rows]
        output.print_table(result.columns, cells)
    typer.echo(output.plain(summary(result, timing=timing)), err=True)


def as_csv(result: Result) -> str:
    """Answer RFC 4180 text with a heading; null is an empty cell."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow([output.plain(name) for name in result.columns])
    writer.writerows(
        [["" if value is None else text(value) for value in row] for row in result.rows]
    )
    return file.getvalue()


def text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return output.plain(value)
    return output.plain(json.dumps(value, ensure_ascii=False))


def summary(result: Result, *, timing: bool = True) -> str:
    noun = "row" if result.row_count == 1 else "rows"
    verb = "" if result.columns else " changed"
    cut = ", more were left out" if result.truncated else ""
    took = f" ({result.elapsed_ms:.1f} ms)" if timing else ""
    return f"{result.row_count} {noun}{verb}{cut}{took}"
