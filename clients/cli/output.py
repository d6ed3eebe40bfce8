"""How answers are shown: tables for people, JSON and YAML for programs."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from clients.cli import given
from clients.errors import ConfigurationError
from clients.wording import listed

COLUMNS_MAX: Final = 9
# A cell wider than this may be folded for the columns after it; between columns stand three spaces.
CELL_MAX: Final = 40
GAP: Final = 3
PIPE_WIDTH: Final = 4096
# Columns people look for first, in the order they read best; others follow as they come.
FIRST: Final[tuple[str, ...]] = (
    "id", "name", "slug", "email", "engine", "engine_version", "kind", "old", "new", "size",
    "status", "paused_by", "region", "plan", "role", "prefix", "scopes", "vcpu", "memory_bytes",
)  # fmt: skip
SENTENCE: Final = "explanation"
LAST: Final = ("created_at", "expires_at", "last_used_at")
# The last ranges turn the direction of writing, and so what a name seems to be.
CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
DECIMAL: Final = ("B", "kB", "MB", "GB", "TB", "PB")
BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Format(StrEnum):
    """What --output takes."""

    table = "table"
    json = "json"
    yaml = "yaml"


class Rows(StrEnum):
    """What --output takes where the answer is rows."""

    table = "table"
    json = "json"
    csv = "csv"


OutputOption = Annotated[
    Format | None,
    typer.Option(
        "--output",
        "-o",
        help="Output format. Default: table.",
        show_default=False,
        rich_help_panel="Common",
    ),
]


def chosen(output: Format | None) -> Format:
    """Answer the format in force: the option, else MENAGERIE_OUTPUT, else a table."""
    said = given.OUTPUT.get()
    if output is None and said is not None and said not in list(Format):
        raise ConfigurationError(
            f"--output {said}: not a format of this command; use {listed(list(Format), 'or')}"
        )
    named = said or os.environ.get("MENAGERIE_OUTPUT")
    return output or (Format(named) if named in list(Format) else Format.table)


def chosen_rows(output: Rows | None) -> Rows:
    """Answer the format in force, as elsewhere; an answer of rows is not shown as YAML."""
    said = given.OUTPUT.get()
    if output is None and said is not None and said not in list(Rows):
        raise ConfigurationError(
            f"--output {said}: not a format for rows; use {listed(list(Rows), 'or')}"
        )
    named = said or os.environ.get("MENAGERIE_OUTPUT")
    return output or (Rows(named) if named in list(Rows) else Rows.table)


def plain(text: str) -> str:
    """Answer the text without control characters: what a server sends must not drive a terminal."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def escaped(text: str) -> str:
    """Answer JSON in which the same characters are written as JSON may write them."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def show(body: Any, output: Format | None, *, title: str | None = None) -> None:
    """Write an answer's body to stdout."""
    if body is None:
        return
    form = chosen(output)
    if isinstance(body, str):
        typer.echo(body if not sys.stdout.isatty() else plain(body), nl=not body.endswith("\n"))
    elif form is Format.json:
        show_json(body)
    elif form is Format.yaml:
        _show_yaml(body)
    else:
        _show_table(body, title)


def _show_yaml(body: Any) -> None:
    """Write YAML; on a terminal whatever could drive it is escaped."""
    import yaml  # noqa: PLC0415  only this format needs it

    body = json.loads(json.dumps(body))  # which knows objects of one kind alone
    text = yaml.safe_dump(body, sort_keys=False, allow_unicode=True)
    if sys.stdout.isatty() and CONTROL.search(text):
        text = yaml.safe_dump(body, sort_keys=False, allow_unicode=False)
    typer.echo(text, nl=False)


def show_json(body: Any) -> None:
    """Write JSON; colored and escaped on a terminal, and nothing but JSON into a pipe."""
    text = json.dumps(body, indent=2, ensure_ascii=False)
    if not sys.stdout.isatty():
        typer.echo(text)
        return
    from rich.console import Console  # noqa: PLC0415  a pipe never needs it
    from rich.highlighter import JSONHighlighter  # noqa: PLC0415  see above

    # Console.print_json would read the text and write it anew, without what is escaped here.
    colored = JSONHighlighter()(escaped(text))
    colored.no_wrap = True
    Console().print(colored, soft_wrap=True)


def _show_table(body: Any, title: str | None) -> None:
    rows = body.get("items") if isinstance(body, Mapping) else body
    if isinstance(rows, list) and all(isinstance(row, Mapping) for row in rows):
        _print_rows(rows, title)
        if not rows:
            typer.echo("no results", err=True)
        if isinstance(body, Mapping) and body.get("next_cursor"):
            cursor = plain(str(body["next_cursor"]))
            typer.echo(f"more results: use --all, or --cursor {cursor}", err=True)
    elif isinstance(body, Mapping):
        print_record(body)
    else:
        show_json(body)


def _print_rows(rows: Sequence[Mapping[str, Any]], title: str | None) -> None:
    """Print resources as a table; a terminal that is too narrow gets fewer columns."""
    names = columns(rows)
    cells = {name: [cell(name, row.get(name)) for row in rows] for name in names}
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415  see show_json

        names = fitting(cells, Console().width)
    print_table(names, list(zip(*(cells[name] for name in names), strict=True)), title)
    if len(names) < len(cells):
        left = plain(", ".join(name for name in cells if name not in names))
        typer.echo(f"columns not shown: {left}; widen the terminal, or use --output json", err=True)


def fitting(cells: Mapping[str, Sequence[str]], width: int) -> list[str]:
    """Answer the columns that stand side by side in `width`, the first one in any case."""
    from rich.cells import cell_len  # noqa: PLC0415  see show_json

    taken: list[str] = []
    left = width - 2 + GAP
    for name, values in cells.items():
        wide = max([cell_len(name), *(min(cell_len(one), CELL_MAX) for one in values)]) + GAP
        if not taken or wide <= left:
            taken.append(name)
            left -= wide
    return taken


def columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Answer which members of the rows become columns, best first, at most COLUMNS_MAX."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    some = [name for name in names if any(_is_shown(row.get(name)) for row in rows)]
    first = [name for name in FIRST if name in some]
    first += [name for name in some if "usd_cents" in name]
    last = [name for name in LAST if name in some][:1]
    left = [name for name in some if not name.endswith("_at") and name not in first]
    # Who and where come after what, and the org is the one that was asked for.
    rest = [name for name in left if not name.endswith(("_id", "_by"))]
    rest += [name for name in left if name.endswith(("_id", "_by")) and name != "org_id"]
    return [*first, *rest][: COLUMNS_MAX - len(last)] + last


def _is_shown(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and not any(isinstance(one, (dict, list)) for one in value)
    return value is not None and not isinstance(value, Mapping)


def cell(name: str, value: Any) -> str:
    """Answer the value as people read it; sizes and money by the unit in the name."""
    if value is None or isinstance(value, bool):
        return {None: "", True: "yes", False: "no"}[value]
    if isinstance(value, int) and "_bytes" in name:
        return _size(value)
    if isinstance(value, int) and "usd_cents" in name:
        return f"${value / 100:,.2f}"
    if isinstance(value, float):
        return json.dumps(round(value, 3))
    if isinstance(value, str) and INSTANT.fullmatch(value):
        return f"{value[:10]} {value[11:19]}Z"
    if isinstance(value, list) and not any(isinstance(one, (dict, list)) for one in value):
        value = ", ".join(str(one) for one in value)
    return plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _size(size: int) -> str:
    """Answer the size in the units it is whole in: disks are sold by the GB, memory by the GiB."""
    base, units = (1000, DECIMAL) if size and size % 1_000_000 == 0 else (1024, BINARY)
    step, left = 0, float(size)
    while left >= base and step < len(units) - 1:
        left, step = left / base, step + 1
    return f"{left:.4g} {units[step]}"


def print_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None
) -> None:
    """Print rows under headings; into a pipe they are never cut or folded."""
    from rich import box  # noqa: PLC0415  see show_json
    from rich.table import Table  # noqa: PLC0415  see show_json
    from rich.text import Text  # noqa: PLC0415  see show_json

    if not names:
        return
    named = None if title is None else Text(plain(title))
    table = Table(box=box.SIMPLE_HEAD, title=named, pad_edge=False, highlight=False)
    for name in names:
        # An id is there to be copied.
        table.add_column(Text(plain(name)), overflow="fold", no_wrap=name == "id")
    for row in rows:
        table.add_row(*(Text(one) for one in row))
    _print(table)


def print_record(record: Mapping[str, Any]) -> None:
    """Print one resource, a member a line; lists of resources follow as tables.

    What explains it in a sentence comes first.
    """
    from rich.table import Table  # noqa: PLC0415  see show_json
    from rich.text import Text  # noqa: PLC0415  see show_json

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    lists: dict[str, list[Mapping[str, Any]]] = {}
    if isinstance(record.get(SENTENCE), str):
        typer.echo(f"{plain(record[SENTENCE])}\n")
    for name, value in flattened(record):
        if name == SENTENCE and isinstance(value, str):
            continue
        if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
            lists[name] = value
        else:
            grid.add_row(Text(plain(name)), Text(cell(name, value)))
    _print(grid)
    for name, rows in lists.items():
        _print_rows(rows, name)


def flattened(record: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the record's members; those of an object within it as `object.member`."""
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _print(table: Any) -> None:
    """Print a table; into a pipe without the spaces that fill its columns up."""
    from rich.console import Console  # noqa: PLC0415  see show_json

    if sys.stdout.isatty():
        Console().print(table)
        return
    console = Console(width=PIPE_WIDTH)
    with console.capture() as captured:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
