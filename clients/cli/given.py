"""What was said before the command: `menagerie -o json --profile work instances list`."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final

OUTPUT: Final[ContextVar[str | None]] = ContextVar("output", default=None)
PROFILE: Final[ContextVar[str | None]] = ContextVar("profile", default=None)
FLAGS: Final = {"-o": OUTPUT, "--output": OUTPUT, "--profile": PROFILE}

HELP: Final = (
    (
        "-o, --output FORMAT",
        "Output format: table, json or yaml; for rows of a query, table, json or csv.",
    ),
    ("--profile NAME", "Profile, by name. Default: the active one."),
)


def forget() -> None:
    for one in (OUTPUT, PROFILE):
        one.set(None)


def take(words: Sequence[str]) -> list[str]:
    """Note the options at the beginning of the words, and answer what is left."""
    left = list(words)
    while left:
        flag, sign, value = left[0].partition("=")
        if flag not in FLAGS or (not sign and len(left) == 1):
            return left
        FLAGS[flag].set(value if sign else left[1])
        left = left[1 if sign else 2 :]
    return left
