"""Make small changes in a room, one at a time, and list those that none of its tests notices.

usage: python -m tools.mutants ROOM [--sample N] [--seed S] [--file NAME]… [--tests PATH]…
                               [--jobs N] [--anew]

  ROOM          policy, boundary or storage
  --sample N    only so many of the mutants, chosen at random
  --seed S      to choose the same ones again
  --file NAME   only those of files of this name, as rules.py
  --tests PATH  by these tests instead of all that the room has, which is faster
  --jobs N      so many at a time, instead of one for each CPU
  --anew        try those again, too, that were killed before and whose function is the same

exit status 1: more than 5 % survive, an entry of tools/mutants/equivalent.toml is stale, or
mutmut could not tell what became of a mutant
"""

import argparse
import os
import random
import sys
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Final

from tools import usage
from tools.mutants import listed
from tools.mutants.listed import Entry
from tools.mutants.results import Change, Mutant, change_of, counts, where
from tools.mutants.rooms import ROOMS
from tools.mutants.work_folder import WorkFolder

ROOT: Final = Path(__file__).resolve().parents[2]
SHARE_MAX: Final = 0.05
_KNOWN: Final = ("killed", "survived", "no tests", "timeout")


def main(arguments: Sequence[str]) -> int:
    """The exit status. Raises SystemExit where the tests fail without any mutant."""
    if usage.is_asked(arguments, __doc__):
        return 0
    # In a usage argparse takes a percent sign for a name to fill in.
    told = __doc__.replace("%", "%%")
    parser = argparse.ArgumentParser(prog="make mutants", usage=told, add_help=False)
    parser.add_argument("room", nargs="?")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--file", action="append", default=[])
    parser.add_argument("--tests", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--anew", action="store_true")
    options = parser.parse_args(arguments)
    if options.room is None or options.room not in ROOMS:
        rooms = "\n".join(f"  make mutants ROOM={name}" for name in ROOMS)
        print(f"the rooms:\n{rooms}\noptions: ARGS='--sample 100'; CONTRIBUTING.md tells more")
        return 0 if options.room is None else 2
    room = ROOMS[options.room]
    room = replace(room, tests=tuple(options.tests) or room.tests)
    folder = WorkFolder(ROOT, options.room, room)
    folder.make(anew=options.anew)
    chosen = folder.names(options.file) if options.file or options.sample else []
    if options.file and not chosen:
        raise SystemExit(f"no mutant is in a file named {' or '.join(options.file)}")
    if options.sample:
        seed = random.randrange(10**6) if options.seed is None else options.seed  # noqa: S311
        print(f"a sample of {options.sample}, with --seed {seed}", flush=True)
        chosen = sample(chosen, options.sample, seed)
    try:
        folder.run(chosen, options.jobs)
    except KeyboardInterrupt:
        print("ended; the same command goes on, and tries no more what was killed", flush=True)
        chosen = [each.name for each in folder.mutants() if each.code is not None]
    return report(folder, chosen, listed.read())


def sample(names: Sequence[str], count: int, seed: int) -> list[str]:
    """So many of the names, or all if there are fewer."""
    return random.Random(seed).sample(sorted(names), min(count, len(names)))  # noqa: S311


def report(folder: WorkFolder, chosen: Sequence[str], entries: Sequence[Entry]) -> int:
    """Print what became of the mutants, of all or of those chosen; the exit status."""
    wanted = {*chosen}
    tried = [each for each in folder.mutants() if not wanted or each.name in wanted]
    with chdir(folder.path):
        survivors = [change_of(each) for each in tried if each.is_survivor]
    matter, excused, unused = listed.split(entries, survivors)
    _print_survivors(matter, folder.root)
    told = counts(tried)
    unknown = {name: count for name, count in told.items() if name not in _KNOWN}
    counted = len(tried) - len(excused)
    share = len(matter) / max(1, counted)
    print(
        f"{len(tried)} mutants tried: {told.get('killed', 0)} killed, "
        f"{told.get('timeout', 0)} timeouts, {told.get('survived', 0)} survived, "
        f"{told.get('no tests', 0)} without test; {len(excused)} of them cannot matter"
    )
    print(f"survivors: {len(matter)} of {counted}, {share:.1%}; at most {SHARE_MAX:.0%}")
    if unknown:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(unknown.items()))
        print(f"{sum(unknown.values())} without a verdict: {kinds}")
    # Of a sample, most entries need no mutant.
    stale = [] if chosen else _stale(unused, tried)
    for entry in stale:
        print(f"stale in tools/mutants/equivalent.toml, as no survivor is like it: {entry}")
    return int(bool(share > SHARE_MAX or stale or unknown))


def _stale(unused: Sequence[Entry], tried: Sequence[Mutant]) -> list[Entry]:
    paths = {Path(each.path) for each in tried}
    return [each for each in unused if any(path.match(each.files) for path in paths)]


def _print_survivors(survivors: Sequence[Change], root: Path) -> None:
    for change in survivors:
        print(f"{where(change, root)}: {change.mutant.outcome}: {change.mutant.name}")
        print("\n".join(f"    {line}" for line in change.diff if line[0] in "+-"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
