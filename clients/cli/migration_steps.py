"""The steps of `menagerie migrate`: sending the source, following the migration, the last line."""

import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import typer

from clients.cli.output import cell, plain
from clients.errors import ConnectionFailed, Problem, ResourceFailed
from clients.migrating import TargetEndpoint

LOOK_EVERY_S: Final = 1.0
ENDED: Final = frozenset({"completed", "failed", "cancelled"})
_CLEAR: Final = "\r\x1b[2K"


def send(
    target: TargetEndpoint,
    made: Mapping[str, Any],
    file: Path | None,
    connection: Mapping[str, Any] | None,
) -> None:
    """Send the source of the migration; a new one whose source is refused is cancelled."""
    name, migration_id = _named(target), str(made["id"])
    typer.echo(plain(f"migration {migration_id} into {target.instance['name']}"), err=True)
    line = StatusLine()
    try:
        if file is not None:
            target.send_file(migration_id, made.get("source_url"), file, line.sent)
        else:
            url = made.get("source_url") or target.source_url(migration_id)
            target.send_connection(migration_id, url, connection or {})
    except Problem:
        line.end()
        if "source_url" in made and target.migration(migration_id)["status"] == "awaiting_source":
            target.cancel(migration_id)
            typer.echo("the source was refused, so the migration was cancelled", err=True)
        raise
    except (ConnectionFailed, KeyboardInterrupt):
        line.end()
        source = "--from-uri -" if file is None else f"--from-file {shlex.quote(str(file))}"
        again = f"menagerie migrate {name} {source} --resume {migration_id}"
        typer.echo(plain(f"the source was not sent completely; to go on: {again}"), err=True)
        raise
    line.end()


def follow(target: TargetEndpoint, migration_id: str, until: str | None) -> dict[str, Any]:
    """Answer the migration as it is; with `until`, once it has that status or has ended."""
    line = StatusLine()
    while True:
        seen = target.migration(migration_id)
        line.tell(seen)
        if until is None or seen["status"] == until or seen["status"] in ENDED:
            line.end()
            return seen
        time.sleep(LOOK_EVERY_S)


def conclude(target: TargetEndpoint, seen: Mapping[str, Any], until: str | None) -> None:
    """Say what is left to do; raise ResourceFailed unless it came to what was waited for."""
    if until is not None and seen["status"] != until:
        reason = f": {seen['status_reason']}" if seen["status_reason"] else ""
        raise ResourceFailed(f"the migration is {seen['status']}{reason}", seen)
    if seen["status"] == "syncing":
        cutover = f"menagerie migrations cutover {_named(target)} {seen['id']}"
        typer.echo(plain(f"stop writing to the source, then run: {cutover}"), err=True)


def _named(target: TargetEndpoint) -> str:
    return shlex.quote(str(target.instance["name"]))


class StatusLine:
    """How far it is, on stderr: one line that changes on a terminal, else one for each status."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._status: str | None = None
        self._is_open = False

    def sent(self, done: int, total: int) -> None:
        amount = cell("_bytes", total)
        told = f"sent {cell('_bytes', done)} of {amount}"
        self._show(told if self._is_terminal else f"sending {amount}", "sending")

    def tell(self, seen: Mapping[str, Any]) -> None:
        self._show(f"{seen['status']}{_figures(seen['progress'])}", str(seen["status"]))

    def end(self) -> None:
        if self._is_open:
            typer.echo("", err=True)
        self._is_open = False

    def _show(self, text: str, status: str) -> None:
        if self._is_terminal:
            typer.echo(f"{_CLEAR}{plain(text)}", nl=False, err=True)
            self._is_open = True
        elif status != self._status:
            typer.echo(plain(text), err=True)
        self._status = status


def _figures(progress: Mapping[str, Any] | None) -> str:
    if progress is None:
        return ""
    told = []
    if progress["bytes_done"] is not None and progress["bytes_total"] is not None:
        done, total = (cell("_bytes", progress[f"bytes_{each}"]) for each in ("done", "total"))
        told.append(f"{done} of {total}")
    if progress["tables_done"] is not None and progress["tables_total"] is not None:
        told.append(f"tables {progress['tables_done']} of {progress['tables_total']}")
    if progress["rows_done"] is not None:
        told.append(f"{progress['rows_done']} rows")
    if progress["estimated_s"] is not None:
        told.append(f"about {progress['estimated_s']:.0f} s left")
    if progress["lag_bytes"] is not None:
        told.append(f"{cell('_bytes', progress['lag_bytes'])} behind")
    return f": {', '.join(told)}" if told else ""
