"""Hostile statements, read from the corpus: by whom, of which kind, and what must come of them."""

import functools
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
# Refused: with an error. Any: answered or refused, where nothing comes of it. Bounded: it may take
# as long as it likes, and the engine with it; its owner is answered again soon after.
OUTCOMES = ("refused", "any", "bounded")
KINDS = (
    "files",
    "network",
    "programs",
    "rights",
    "internals",
    "settings",
    "links",
    "resources",
)
OWNER = "owner"


@dataclass(frozen=True)
class Attack:
    """`steps` are said on one connection, one after the other."""

    by: str
    kind: str
    must_not: str
    outcome: str
    steps: tuple[str, ...]
    name: str | None = None


def paths() -> list[Path]:
    return sorted(CORPUS.glob("*.toml"))


def engines_of(path: Path) -> list[str]:
    return list(tomllib.loads(path.read_text())["engines"])


@functools.cache
def _files() -> dict[str, tuple[Attack, ...]]:
    """The attacks on each engine; engines of one family share a file."""
    found: dict[str, tuple[Attack, ...]] = {}
    for path in paths():
        document = tomllib.loads(path.read_text())
        read = tuple(
            Attack(
                table["by"],
                table["class"],
                table["must_not"],
                table["outcome"],
                (each,) if isinstance(each, str) else tuple(each),
                table.get("name"),
            )
            for table in document["attack"]
            for each in table["statements"]
        )
        found |= dict.fromkeys(document["engines"], read)
    return found


def engines() -> set[str]:
    return set(_files())


def attacks(engine: str, by: str = OWNER) -> list[Attack]:
    return [attack for attack in _files()[engine] if attack.by == by]


def said(engine: str, by: str = OWNER, *, outcome: str | None = None) -> list[str]:
    """Attacks of one statement each; those that hog are left out, unless they are asked for."""
    return [
        attack.steps[0]
        for attack in attacks(engine, by)
        if len(attack.steps) == 1
        and (attack.outcome == outcome if outcome else attack.kind != "resources")
    ]


def called(engine: str, name: str) -> tuple[str, ...]:
    return tuple(attack.steps[0] for attack in attacks(engine) if attack.name == name)


def sequences(engine: str, name: str) -> tuple[tuple[str, ...], ...]:
    """The same with all their steps."""
    return tuple(attack.steps for attack in attacks(engine) if attack.name == name)


def counts(engine: str) -> Counter[str]:
    """How many there are of each kind, by whomever."""
    return Counter(attack.kind for attack in _files()[engine])


def places(
    folder: Path,
    home: Path,
    neighbour: Path,
    *,
    port: int = 1,
    udp: int = 1,
    canary: Path | None = None,
) -> dict[str, str]:
    """What statements name: a folder for everybody, a cell's home, a neighbour's data, listeners.

    The database of DuckDB lies where it sees it.
    """
    return {
        "canary": str(canary or folder / "canary.csv"),
        "planted": str(folder / "planted"),
        "folder": str(folder),
        "folder_name": folder.name,
        "listener": str(folder / "listener"),
        "seal": str(home / "seal.key"),
        "home": str(home),
        "neighbour": str(neighbour),
        "port": str(port),
        "udp": str(udp),
        "url": f"http://127.0.0.1:{port}",
        "data": "/instance/data/database.duckdb",
        "temp": "/instance/data/temp",
    }


# For tests of an engine alone, where files that are no canaries must do.
ELSEWHERE = places(Path("/tmp"), Path("/var"), Path("/var/lib"), canary=Path("/etc/passwd"))


def fill(statement: str, names: Mapping[str, str] = ELSEWHERE) -> str:
    """A statement with its names in place; other braces are its own."""
    for name, value in names.items():
        statement = statement.replace(f"{{{name}}}", value)
    return statement


def words(line: str) -> list[str]:
    """A command as a shell would split it; quotes are around the last word, none inside it."""
    before, quote, rest = line.partition("'")
    inside, _, after = rest.partition("'")
    return [*before.split(), *([inside] if quote else []), *after.split()]
