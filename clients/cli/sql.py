"""SQL on an instance from the command line: whose credential, which session, how rows are shown."""

import csv
import io
import json
from collections.abc import Sequence
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

import typer

from clients.cli import output
from clients.cli.desk import Desk
from clients.endpoint import HTTPS_ENGINES, Credential, CredentialFile, Endpoint, Result, Session
from clients.errors import ConfigurationError, QueryFailed

UNAUTHORIZED = 401


class Rows(StrEnum):
    """What --output takes where the answer is rows."""

    table = "table"
    json = "json"
    csv = "csv"


class Keeper:
    """One instance with its credential, which is kept in the file unless told otherwise."""

    def __init__(
        self, endpoint: Endpoint, *, store: bool, file: CredentialFile | None = None
    ) -> None:
        self.endpoint = endpoint
        self._store = store
        self._file = file or CredentialFile()
        self._base_url = endpoint.client.base_url
        self._session: Session | None = None

    def credential(self) -> Credential:
        """Answer the kept credential, or reveal it."""
        kept = self._file.get(self._base_url, self.endpoint.instance["id"]) if self._store else None
        return kept or self.renewed()

    def renewed(self) -> Credential:
        """Reveal the credential anew; the kept one is forgotten even where that fails."""
        if self._store:
            self._file.forget(self._base_url, self.endpoint.instance["id"])
        credential = self.endpoint.reveal()
        if self._store:
            self._file.keep(self._base_url, self.endpoint.instance["id"], credential)
        return credential

    def query(self, sql: str, params: Sequence[Any] | None = None) -> Result:
        """Run a statement; once more with a fresh credential where a kept one is refused."""
        fresh = self._session is None
        session = self._session = self._session or Session(self.endpoint, self.credential())
        try:
            return session.query(sql, params)
        except QueryFailed as error:
            if error.status != UNAUTHORIZED or (fresh and not self._store):
                raise
        session.close()
        self._session = Session(self.endpoint, self.renewed())
        return self._session.query(sql, params)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            self._session.close()


def endpoint_of(desk: Desk, name_or_id: str) -> Endpoint:
    """Answer the instance's endpoint, whatever its engine."""
    return Endpoint(desk.client, desk.instance(name_or_id), org=desk.org())


def require_sql_over_https(endpoint: Endpoint) -> None:
    engine = endpoint.instance["engine"]
    if engine not in HTTPS_ENGINES:
        name = endpoint.instance["name"]
        raise ConfigurationError(
            f"{engine} does not answer SQL over HTTPS; use `menagerie connect {name}`"
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
        typer.echo(as_csv(result), nl=False)
    elif result.columns:
        cells = [[text(value) for value in row] for row in result.rows]
        output.print_table(result.columns, cells)
    typer.echo(summary(result, timing=timing), err=True)


def as_csv(result: Result) -> str:
    """Answer RFC 4180 text with a heading; null is an empty cell."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(result.columns)
    writer.writerows(
        [["" if value is None else text(value) for value in row] for row in result.rows]
    )
    return file.getvalue()


def text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return output.plain(value)
    return json.dumps(value, ensure_ascii=False)


def summary(result: Result, *, timing: bool = True) -> str:
    noun = "row" if result.row_count == 1 else "rows"
    verb = "" if result.columns else " changed"
    cut = ", more were left out" if result.truncated else ""
    took = f" ({result.elapsed_ms:.1f} ms)" if timing else ""
    return f"{result.row_count} {noun}{verb}{cut}{took}"
