"""Which names settings may have, and the nearest to one that is none."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

PREFIX = "MENAGERIE_"
# Variables that are no settings of the service: of the command line's client, of `make`, our own.
OTHERS = frozenset(
    f"{PREFIX}{name}"
    for name in (
        *("API_KEY", "CA_FILE", "ORG", "OUTPUT", "PROFILE", "PROJECT", "SESSION_TOKEN"),
        "SOURCE_URI",
        *("CONFIG", "NO_SYSTEM_PACKAGES"),
        *("ENGINE", "OWNER_FD", "PARENT_PID"),
    )
)
# Kubernetes sets such in every pod beside a service that is called menagerie.
_LINKS = re.compile(rf"{PREFIX}(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")


def unknown_variables(variables: Iterable[str], settings: Iterable[str]) -> str:
    """Names those that would set nothing, in a line; empty where there are none."""
    known = {f"{PREFIX}{name.upper()}" for name in settings} | OTHERS
    named = {name for name in variables if name.startswith(PREFIX)}
    return _line("variable", {name for name in named - known if not _LINKS.fullmatch(name)}, known)


def unknown_keys(keys: Iterable[str], settings: Iterable[str]) -> str:
    """The same of a file's keys."""
    known = set(settings)
    return _line("setting", set(keys) - known, known)


def _line(kind: str, unknown: set[str], known: set[str]) -> str:
    if not unknown:
        return ""
    told = []
    for name in sorted(unknown):
        near = get_close_matches(name, known, n=1)
        told.append(f"{name} (did you mean {near[0]}?)" if near else name)
    plural = "s" if len(told) > 1 else ""
    return f"unknown {kind}{plural} {', '.join(told)}; see docs/configuration.md"
