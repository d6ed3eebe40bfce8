"""Owns the command: what is asked of it, and that it is answered within the memory it may have."""

import argparse
import sys
from pathlib import Path
from typing import Any

import orjson

# For pandas the engine's binding looks twice for each parameter, on disk.
sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]  # says that there is none

from instance_services.duckdb import memory  # noqa: E402
from instance_services.table_files import archive, columns, framing, reading, sending  # noqa: E402
from instance_services.table_files.kinds import COLUMNS_MAX, FoundColumn  # noqa: E402
from instance_services.table_files.reading import UnreadableTableError  # noqa: E402

ODDITIES_MAX = 50


def main() -> int:
    parser = argparse.ArgumentParser(prog="table_files")
    parser.add_argument("act", choices=("unpack", "inspect", "copy", "insert", "fill"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--process-bytes", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--name")
    parser.add_argument("--columns-max", type=int, default=COLUMNS_MAX)
    parser.add_argument("--database", type=Path)
    asked = parser.parse_args()
    memory.limit(asked.process_bytes)
    if asked.act == "unpack":
        archive.unpack(asked.folder / "upload", asked.name)
        return 0
    listed = orjson.loads((asked.folder / "tables.json").read_bytes())
    try:
        _ACTS[asked.act](asked, listed)
    except UnreadableTableError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _connect(asked: argparse.Namespace) -> Any:
    given = (asked.folder, asked.memory_bytes, asked.threads)
    if asked.database is None:
        return reading.connect(*given)
    return reading.connect(*given, str(asked.database))


def _opened(
    asked: argparse.Namespace, table: dict[str, Any]
) -> tuple[reading.TableFile, list[FoundColumn]]:
    """As it was found when it was looked at."""
    found = [FoundColumn(**each) for each in table["columns"]]
    names = tuple(each.name for each in found)
    natives = tuple(each.native or "" for each in found)
    path = asked.folder / table["file"]
    return reading.TableFile(path, table["form"], table["delimiter"], names, natives), found


def _inspect(asked: argparse.Namespace, listed: list[dict[str, Any]]) -> None:
    """A line for each file: what its columns are, or why it cannot be read."""
    for table in listed:
        try:
            with _connect(asked) as connection:
                told = _looked_at(connection, asked, table)
        except UnreadableTableError as error:
            told = {"error": str(error)}
        framing.say({"file": table["file"], **told})
        framing.flush()


def _looked_at(connection: Any, asked: argparse.Namespace, table: dict[str, Any]) -> dict[str, Any]:
    file = reading.opened(connection, asked.folder / table["file"], table["form"])
    if len(file.names) > asked.columns_max:
        raise UnreadableTableError(
            f"the file has {len(file.names)} columns; a table has at most {asked.columns_max}"
        )
    found = columns.find(connection, file)
    _check_rows(file, found.rows, table)
    # What is cut off must not be what refuses the file.
    oddities = sorted(found.oddities, key=lambda each: each.severity != "blocking")
    return {
        "rows": found.rows,
        "delimiter": file.delimiter,
        "columns": [each.told() for each in found.columns],
        "oddities": [vars(each) for each in oddities[:ODDITIES_MAX]],
    }


def _check_rows(file: reading.TableFile, count: int, table: dict[str, Any]) -> None:
    """By the ends of lines, which were counted as the file was unpacked."""
    if file.form != "csv":
        return
    expected = table["lines"] if len(file.names) == 1 else table["lines"] - table["blank"]
    if count != max(0, expected - 1):
        raise UnreadableTableError(
            f"it has {max(0, expected - 1)} rows by the ends of its lines, but {count} were read: "
            "a quote stands within a value that is not quoted, or is not closed"
        )


def _copy(asked: argparse.Namespace, listed: list[dict[str, Any]]) -> None:
    for table in listed:
        with _connect(asked) as connection:
            sending.send_copy(connection, *_opened(asked, table))


def _insert(asked: argparse.Namespace, listed: list[dict[str, Any]]) -> None:
    for table in listed:
        place = ".".join(f"`{table[each].replace('`', '``')}`" for each in ("schema", "name"))
        with _connect(asked) as connection:
            sending.send_inserts(connection, *_opened(asked, table), place)


def _fill(asked: argparse.Namespace, listed: list[dict[str, Any]]) -> None:
    with _connect(asked) as connection:
        for table in listed:
            file, found = _opened(asked, table)
            sending.fill(connection, file, found, table["schema"], table["name"])


_ACTS = {"inspect": _inspect, "copy": _copy, "insert": _insert, "fill": _fill}

if __name__ == "__main__":
    sys.exit(main())
