"""Every benchmark in one run; what is printed is also what docs/benchmarks.md holds.

usage: python -m tools.bench [specserver|gateway|migrations …]    exit status 1: a limit is exceeded
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

from tools import usage

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
_GATEWAY = ("gateway", "gateway_postgres", "egress")
_SERVICES = ("specserver", "duckdb", *_GATEWAY, "work", "neighbour", "backups", "search")
_EVENTS = ("webhooks", "streams")
ROOMS = (*_SERVICES, *_EVENTS, "usage", "migrations", "whole_way", "memory", "command_line")
_HEAD = """\
# Benchmarks

The output of the last full run of `make bench`: Python {python}, {cores} cores. Compare the ratios
within one run; the microseconds depend on the machine. The command fails if a limit is exceeded.
Benchmarks are not tests: nothing in `make test` depends on time.
"""
_PROFILE = "## Where the time of a request goes\n"


def _run(room: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", f"tools.bench.{room}"],
        env={**os.environ, "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def _profile() -> str:
    """What people wrote below the measurements, which no run replaces."""
    _, _, rest = PAGE.read_text().partition(_PROFILE)
    return _PROFILE + rest


def main(chosen: list[str]) -> int:
    """Run the chosen rooms' benchmarks, all of them by default; only a full run is kept."""
    if usage.is_asked(chosen, __doc__):
        return 0
    unknown = set(chosen) - set(ROOMS)
    if unknown:
        print(f"unknown benchmark: {', '.join(sorted(unknown))}; available: {', '.join(ROOMS)}")
        return 2
    page = [_HEAD.format(python=platform.python_version(), cores=os.cpu_count())]
    worst = 0
    for room in chosen or ROOMS:
        print(f"measuring {room} …", file=sys.stderr)
        code, text = _run(room)
        print(text)
        page.append(f"## {room}\n\n```\n{text.strip()}\n```\n")
        worst = max(worst, code)
    if not chosen:
        page.append(_profile())
        PAGE.write_text("\n".join(page))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
