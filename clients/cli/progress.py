"""The line that tells a waiting person what is going on. It goes to stderr, never to the answer."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import typer

from clients.cli.output import plain

NAMED_BY: Final = ("name", "hostname", "id", "instance_id")


@contextmanager
def waiting(wanted: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show a resource's way to the wanted status; yield what is to be told of each sight of it."""
    started_at = time.monotonic()
    if not sys.stderr.isatty():
        yield _lines(started_at)
        return
    from rich.console import Console  # noqa: PLC0415  only a terminal needs it
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415  see above

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"waiting for {wanted}", total=None)

        def tell(seen: Mapping[str, Any]) -> None:
            # At once: what comes next may be seen before the bar would be drawn again.
            bar.update(task, description=f"{_said(seen)}, waiting for {wanted}", refresh=True)

        yield tell


def _lines(started_at: float) -> Callable[[Mapping[str, Any]], None]:
    """Answer a teller for logs: a line for each new status, and no other."""
    last: list[Any] = []

    def tell(seen: Mapping[str, Any]) -> None:
        if last != [seen.get("status")]:
            last[:] = [seen.get("status")]
            typer.echo(f"{_said(seen)} ({time.monotonic() - started_at:.1f} s)", err=True)

    return tell


def _said(seen: Mapping[str, Any]) -> str:
    name = next((seen[one] for one in NAMED_BY if seen.get(one)), "it")
    return plain(f"{name} is {seen.get('status', 'being changed')}")
