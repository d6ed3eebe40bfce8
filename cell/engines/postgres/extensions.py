"""Which extensions an owner may create by himself, and how the cell's copy of a source says so."""

import functools
import re
from pathlib import Path
from typing import Final

from cell.engines.postgres.sources import Source

# Types, operators, functions and index methods that reach nothing outside their database, and hold
# no pointer that a caller could bend. Their scripts run as the superuser and pin what they call:
# earthdistance's names a type of another extension, which before 16 an owner could put his own in
# the place of, so that his code ran as the superuser.
# Whatever is not here stays as its author has it: what reads files or pages (file_fdw, pageinspect,
# pg_surgery, …), connects (dblink, postgres_fdw) or is a language needs a superuser.
SAFE: Final = frozenset(
    {
        *("bloom", "btree_gin", "btree_gist", "citext", "cube", "dict_int", "dict_xsyn"),
        *("fuzzystrmatch", "hstore", "intarray", "isn", "lo", "ltree"),
        *("pg_stat_statements", "pg_trgm", "pgcrypto", "seg", "tablefunc", "tcn"),
        *("tsm_system_rows", "tsm_system_time", "unaccent", "uuid-ossp", "vector"),
    }
)
# What an extension needs to have been loaded at the server's start.
PRELOADED: Final = ("pg_stat_statements",)
_TRUSTED = re.compile(
    r"^\s*trusted\s*=\s*'?(true|on|yes|1)'?\s*(#.*)?$", re.MULTILINE | re.IGNORECASE
)
Called = tuple[tuple[str, str], ...]
"""Of each extension, with nothing first, in which it is known to be there."""
_INTERNAL = re.compile(r"language\s+'?internal", re.IGNORECASE)
_SYMBOL = re.compile(r"\bAS\s+'(\w+)'", re.IGNORECASE)
_PLAIN = re.compile(r"[\w$/.+-]+")
_LIBRARY = re.compile(r"^\s*module_pathname\s*=\s*'\$libdir/([^']+)'", re.MULTILINE)


def creatable(source: Source) -> list[str]:
    """What `CREATE EXTENSION` takes from the owner of a database."""
    controls = sorted((source.share / "extension").glob("*.control"))
    return [each.stem for each in controls if _offered(source, each)]


def preloaded(source: Source) -> list[str]:
    return [name for name in PRELOADED if source.has(name)]


@functools.lru_cache(maxsize=16)
def called(source: Source) -> Called:
    """What functions of those that owners create call: their library, and the server's own."""
    found = {(name, "") for name in creatable(source)}
    folder = source.share / "extension"
    for name, _ in tuple(found):
        if library := _LIBRARY.search((folder / f"{name}.control").read_text(errors="replace")):
            found.add((name, f"$libdir/{library[1]}"))
        for script in folder.glob(f"{name}--*.sql"):
            text = script.read_text(errors="replace")
            if _INTERNAL.search(text):
                found |= {(name, each) for each in _SYMBOL.findall(text)}
    return tuple(sorted(each for each in found if _PLAIN.fullmatch("".join(each))))


def trust(folder: Path) -> None:
    """Marks the safe ones among the control files of a folder, which is the cell's own."""
    for control in folder.glob("*.control"):
        if control.stem in SAFE:
            text = control.read_text()
            kept = [line for line in text.splitlines() if line.split("=")[0].strip() != "trusted"]
            # A link: the installation's own file must not change.
            control.unlink()
            control.write_text("\n".join([*kept, "trusted = true"]) + "\n")
            control.chmod(0o644)


def _offered(source: Source, control: Path) -> bool:
    """Some wheels carry the control file of what they left out."""
    text = control.read_text(errors="replace")
    library = _LIBRARY.search(text)
    there = library is None or (source.libraries / f"{library[1]}.so").exists()
    return there and (control.stem in SAFE or _TRUSTED.search(text) is not None)
