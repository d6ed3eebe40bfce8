"""Memory of all parts of `menagerie serve` at rest, without instances; the bar is their sum."""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

AT_MOST_MB = 300.0
SETTLE_S = 15.0
_NOTES = """\
The bar is for PSS, the proportional share: a page that several processes have is divided among
them, so that each page is counted once and the sum is what stopping `serve` frees. RSS counts it
again for each process, so summed RSS counts what the gateway's three processes share three times
(decision 0041).

Memory of the API by part: the interpreter 9, settings (pydantic) 16, SQLAlchemy 18, cryptography
7, httpx 7, Connexion with Flask and requests 19, its own code 25, the document with a validator
for each body and parameter 16, threads and the rest 15. The cell: about the same without
SQLAlchemy, drivers with psycopg 16, its two documents 10. Processes that `serve` starts do not
load the command line (13 each), and the first start runs in a process that exits (50)."""


def memory_mb(process: psutil.Process) -> dict[str, float]:
    """Resident set, and its proportional share: pages of several processes are counted once."""
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return {"rss": found["Rss"], "pss": found["Pss"]}


def tree(root: psutil.Process) -> list[tuple[str, psutil.Process]]:
    """`serve` and all its parts, by what they are."""
    found = [("serve", root)]
    for child in root.children():
        name = child.cmdline()[-1]
        found.append((name, child))
        found += [(f"{name} worker", each) for each in child.children(recursive=True)]
    return found


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="menagerie-bench-") as home:
        command = [sys.executable, "-m", "menagerie", "serve", "--home", home, "--port", "0"]
        with subprocess.Popen(
            [*command, "--gateway-port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as serve:
            try:
                assert serve.stdout is not None
                assert any("Or run the same" in line for line in serve.stdout), "it did not start"
                # Schedules have run, so that what they load is there.
                time.sleep(SETTLE_S)
                rows = [(name, memory_mb(each)) for name, each in tree(psutil.Process(serve.pid))]
            finally:
                serve.send_signal(signal.SIGTERM)
    return _report(rows)


def _report(rows: list[tuple[str, dict[str, float]]]) -> int:
    table = Table(title="Memory at rest (MB)")
    for heading in ("process", "RSS", "PSS"):
        table.add_column(heading, justify="left" if heading == "process" else "right")
    for name, each in rows:
        table.add_row(name, f"{each['rss']:.0f}", f"{each['pss']:.0f}")
    rss, pss = (sum(each[kind] for _, each in rows) for kind in ("rss", "pss"))
    table.add_section()
    table.add_row("all", f"{rss:.0f}", f"{pss:.0f}")
    Console().print(table)
    kept = pss < AT_MOST_MB
    print(f"PSS of all, MB: {pss:.0f}, at most {AT_MOST_MB:.0f}{'' if kept else ' FAIL'}")
    print(_NOTES)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
