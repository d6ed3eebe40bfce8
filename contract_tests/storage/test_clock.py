"""One clock decides what is due, leased or expired: the database's, and no host's (39)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("control", "handlers", "storage", "menagerie")
MAY = {
    "control/boundary/windows.py": "counts that one process keeps for itself, of lengths of time",
    "menagerie/doctor/installation.py": "tells how far the two clocks are apart",
    "menagerie/endpoints.py": "a cell's first certificate, made before any database is there",
    "control/siem/lane.py": "says when a batch is sent, to targets that compare their own clocks",
    "control/webhooks/sending.py": "says when an attempt is made, to receivers that compare theirs",
    "menagerie/monitoring/folder.py": "says how old a folder of this host is",
    "menagerie/monitoring/collectors.py": "says how old a file of this host is",
    "menagerie/recovery/archives.py": "says when a backup of the installation was made",
    "menagerie/recovery/last_made.py": "says when the last one was made, for this host's doctor",
    "menagerie/recovery/state.py": "says when a backup of the installation was begun",
    "storage/columns.py": "asks the database",
}
HOSTS = re.compile(
    r"\b(time\.(time|time_ns|localtime|gmtime)|datetime\.(now|utcnow|today)|date\.today"
    r"|func\.(now|current_\w+|localtime\w*))$"
)
SQL = re.compile(r"\bCURRENT_TIME|\bLOCALTIME|\bnow\(\)|clock_timestamp|'now'", re.IGNORECASE)
WHOLE = {"time", "time_ns", "localtime", "gmtime"}


def clocks(tree: ast.AST) -> Iterator[str]:
    """Whatever in the code tells the time of day."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and HOSTS.search(ast.unparse(node)):
            yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from ({each.name for each in node.names} & WHOLE)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (found.group() for found in SQL.finditer(node.value))


def test_nothing_is_decided_by_the_clock_of_a_host() -> None:
    asking = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if any(clocks(ast.parse(path.read_text())))
    }
    assert asking == set(MAY)


@pytest.mark.parametrize(
    "code",
    [
        "datetime.now(UTC)",
        "dt.datetime.now(tz=dt.UTC)",
        "datetime.now",
        "time.time() - at",
        "from time import time",
        "default=func.now()",
        "text('UPDATE work SET due = CURRENT_TIMESTAMP')",
    ],
)
def test_each_way_to_ask_a_host_is_seen(code: str) -> None:
    given = f"f({code})" if "=" in code and "import" not in code else code
    assert list(clocks(ast.parse(given)))
