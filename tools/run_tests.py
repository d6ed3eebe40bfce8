"""Run every test: first in parallel, then those that want the machine to themselves.

usage: python -m tools.run_tests [--nightly] [--room ROOM]... [--changed] [--order ORDER]
                                 [pytest options…]

  --nightly    the long runs as well
  --room ROOM  only the tests of a room (as handlers) or a folder of tests (as api); may be repeated
  --changed    only the tests of the rooms that differ from the branch main
  --order ORDER  `reverse`, or `random` with another seed each time, or `random:SEED` as once before
"""

import argparse
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from tools import usage
from tools.spread import spread

ROOT: Final = Path(__file__).resolve().parents[1]
TESTS: Final = ROOT / "contract_tests"
# The folders of tests that a room's behaviour is shown by.
ROOMS: Final = {
    "specserver": ("specserver",),
    "handlers": ("api", "policy"),
    "control": ("boundary", "delivery", "saml", "siem", "workflows", "policy", "api"),
    "storage": ("storage", "workflows"),
    "cell": ("cell", "engines", "isolation"),
    "gateway": ("gateway", "engines", "isolation"),
    "instance_services": ("duckdb", "search", "cell"),
    "clients": ("clients",),
    "pages": ("pages", "api", "cell", "clients"),
    "menagerie": ("end_to_end", "monitoring"),
    "tools": ("habits", "end_to_end", "mistakes"),
    "docs": ("habits", "clients"),
}
_NOTHING_COLLECTED: Final = 5
# A run was seen to hold 6.3 GB at one time.
_DISK_BYTES: Final = 8 * 2**30
# Past its own limit a test is told to fail, once. Where its fixtures then wait for ever, or a C
# library does, its worker prints its stack and ends: nothing else would end that, while CI lasts.
_STUCK_S: Final = 600
_STUCK_AT_NIGHT_S: Final = 7200
# A worker that cannot do even that holds up all of them; so many times as long, and it is told.
_STUCK_WHOLE: Final = 6
# Read by contract_tests/skips.py.
_LISTED_SKIPS_ONLY: Final = "LISTED_SKIPS_ONLY"
# Read by contract_tests/order.py.
_ORDER: Final = "CONTRACT_TESTS_ORDER"


def folders_of(rooms: Iterable[str]) -> list[str]:
    """The folders to run, for rooms or folders of tests. Raises SystemExit for an unknown one."""
    found: set[str] = set()
    for room in rooms:
        if room not in ROOMS and not (TESTS / room).is_dir():
            known = sorted({*ROOMS, *_folders()})
            raise SystemExit(f"{room} is not a room; choose one of {', '.join(known)}")
        found.update(ROOMS.get(room, (room,)))
    return [str(TESTS.relative_to(ROOT) / name) for name in sorted(found)]


def changed_rooms() -> set[str]:
    """Rooms, and folders of tests, with files that differ from main; documents are handlers'."""
    words = ["git", "diff", "--name-only", "--merge-base", "main"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    others = ["git", "ls-files", "--others", "--exclude-standard"]
    listed += subprocess.run(others, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rooms = set()
    for path in map(Path, listed.split()):
        place = path.parts[1] if path.parts[0] == "contract_tests" else path.parts[0]
        if place in {"openapi", "openapi.yaml"}:
            rooms |= {"handlers", "clients"}
        elif place in ROOMS or (TESTS / place).is_dir():
            rooms.add(place)
    return rooms


def main(arguments: list[str]) -> int:
    """The worse of the two parts' exit codes; a part without tests is no failure."""
    if usage.is_asked(arguments, __doc__):
        return 0
    parser = argparse.ArgumentParser(prog="tools.run_tests", add_help=False)
    parser.add_argument("--nightly", action="store_true")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--room", action="append", default=[])
    parser.add_argument("--order", type=order, metavar="ORDER")
    options, rest = parser.parse_known_args(arguments)
    rooms = {*options.room, *(changed_rooms() if options.changed else ())}
    if options.changed and not rooms:
        print("nothing differs from main")
        return 0
    named = any((ROOT / each.split("::")[0]).exists() for each in rest)
    # `make check` has held the habits already.
    wanted = folders_of(rooms) or ([] if named else folders_of(set(_folders()) - {"habits"}))
    if options.order:
        print(f"in this order: --order {options.order}", flush=True)
        os.environ[_ORDER] = options.order
    stuck_s = _STUCK_AT_NIGHT_S if options.nightly else _STUCK_S
    return _run(rest, wanted, "" if options.nightly else " and not nightly", stuck_s)


def order(wanted: str) -> str:
    """With a seed, which for `random` alone is a new one, so that the run can be repeated."""
    name, _, seed = wanted.partition(":")
    if wanted == "reverse" or (name == "random" and seed):
        return wanted
    if wanted == "random":
        return f"random:{secrets.randbelow(10**6)}"
    known = "reverse, random or random:SEED"
    raise argparse.ArgumentTypeError(f"{wanted} is not an order; use {known}")


def _folders() -> list[str]:
    return [each.name for each in TESTS.iterdir() if each.is_dir() and each.name != "__pycache__"]


def exclusive(folders: Iterable[str]) -> list[str]:
    """The files with such tests: to collect all the others again takes ten seconds."""
    files = (path for folder in folders for path in sorted((ROOT / folder).rglob("test_*.py")))
    return [str(path.relative_to(ROOT)) for path in files if "mark.exclusive" in path.read_text()]


def _run(rest: list[str], folders: list[str], chosen: str, stuck_s: int) -> int:
    # Engines and servers are waited for: two of these keep hardly more than one CPU busy. A file
    # is one worker's, as its tests share what they start, and the longest come first.
    count = (os.cpu_count() or 1) * 5 // 2
    workers = ["-n", str(count), "--dist", "loadfile", "--no-loadscope-reorder"]
    # Where a worker dies, what was left of its files is waited for until the watchdog comes; this
    # way the test is told at once with which it died.
    workers.append("--max-worker-restart=0")
    alone = exclusive(folders)
    parts = [(f"not exclusive{chosen}", [*workers, *folders])]
    if alone or not folders:
        parts.append((f"exclusive{chosen}", ["-n0", *alone]))
    worst = 0
    with temporary_folder() as temporary:
        for marks, how in parts:
            command = [sys.executable, "-m", "pytest", "-q", "-m", marks]
            for each in (f"timeout={stuck_s}", "exit_on_timeout=true"):
                command += ["-o", f"faulthandler_{each}"]
            command += [*how, *rest]
            code = _watched(command, _surroundings(temporary), stuck_s)
            worst = max(worst, 0 if code == _NOTHING_COLLECTED else code)
    return worst


def _watched(command: list[str], surroundings: dict[str, str], stuck_s: int) -> int:
    """Its exit code; once nothing can come of it any more, what its processes are doing, and 1."""
    with subprocess.Popen(command, env=surroundings) as process:
        try:
            return process.wait(stuck_s * _STUCK_WHOLE)
        except subprocess.TimeoutExpired:
            print("\nthe tests do not end; these are their processes:", flush=True)
            started = psutil.Process(process.pid).children(recursive=True)
            for each in [psutil.Process(process.pid), *started]:
                with suppress(psutil.Error):
                    words = " ".join(each.cmdline())[:150]
                    print(f"{each.ppid()} > {each.pid} {each.status()} {words}", flush=True)
            for each in started:
                with suppress(psutil.Error):
                    each.kill()
            psutil.wait_procs(started, timeout=10)
            process.kill()
            return 1


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """The temporary folder of this run: nothing of it stays, also of what was killed."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < _DISK_BYTES:
        raise SystemExit(
            f"the tests need {_DISK_BYTES >> 30} GiB in {tempfile.gettempdir()}, which has"
            f" {free / 2**30:.1f}: make room, or set TMPDIR to a folder that has it"
        )
    # Its name is short, as the paths of sockets are limited.
    made = Path(tempfile.mkdtemp(prefix="mt"))
    try:
        # Other users write there too, as to any such folder.
        made.chmod(0o1777)
        spread(made)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _surroundings(temporary: Path) -> dict[str, str]:
    """Where `make test` has installed what tests need, none may be skipped for the lack of it."""
    surroundings = {**os.environ, "TMPDIR": str(temporary)}
    may_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    if may_install and os.environ.get("MENAGERIE_NO_SYSTEM_PACKAGES") != "1":
        surroundings[_LISTED_SKIPS_ONLY] = "1"
    return surroundings


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
