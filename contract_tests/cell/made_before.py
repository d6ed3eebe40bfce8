"""What cells make of programs before a first instance: by one of a worker's, for the others.

A template of PostgreSQL takes a second of a CPU, and one of MariaDB half of one. What is secret in
it comes of the cell's key, so that these cells have one key.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

KEY = os.urandom(32)
# Of a home: folders of which each entry is one that was made, or is being made.
PLACES = ("engines/postgres", "templates")
_PASSING = ("making-*", "*-spare-*", "*.part", "lock")
_living: list[Path] = []


def give(home: Path) -> None:
    """All there is, to a home that is new."""
    for other in _living:
        _keep(other)
    home.mkdir(parents=True)
    key = os.open(home / "seal.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(key, "wb") as file:
        file.write(KEY)
    for place in PLACES:
        for made in _finished(_shelf() / place):
            _copy(made, home / place / made.name)
    _living.append(home)


def take_back(home: Path) -> None:
    """What is to outlive a home that was given something."""
    if home in _living:
        _keep(home)
        _living.remove(home)


@cache
def _shelf() -> Path:
    made = Path(tempfile.mkdtemp(prefix="made-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _keep(home: Path) -> None:
    for place in PLACES:
        for made in _finished(home / place):
            if not (_shelf() / place / made.name).exists():
                _copy(made, _shelf() / place / made.name)


def _finished(folder: Path) -> Iterator[Path]:
    """Each gets its name once it is whole."""
    if folder.is_dir():
        entries = sorted(folder.iterdir())
        yield from (each for each in entries if not any(map(each.match, _PASSING)))


def _copy(made: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if made.is_dir():
        shutil.copytree(made, target, symlinks=True, copy_function=_link)
    else:
        _link(str(made), str(target))


def _link(source: str, target: str) -> str:
    """Nobody writes to it; and a copy where it is in another file system."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
    return target
