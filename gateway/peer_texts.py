"""What a peer says, as it may be kept, logged and shown: one line of printable characters.

A text may hold what a database refuses (U+0000), what is no UTF-8 (half of a surrogate pair), or
what makes a reader see something else (escape sequences, a change of direction), and be of any
length. Whoever takes it from a peer that is trusted less makes it harmless where it enters.
"""

from typing import Any, Final

from gateway.log_lines import cut, escaped

TEXT_MAX: Final = 2_000
PEM_MAX: Final = 1 << 16


def printable(text: str, most: int = TEXT_MAX) -> str:
    if not text.isprintable():
        # Cut first as well: what is escaped is up to ten times as long.
        text = escaped(" ".join(cut(text, most).split()))
    return cut(text, most)


def all_printable(value: Any, name: str = "") -> Any:
    """Of a JSON document, each text in it; lines stay in what is called `…_pem`."""
    if isinstance(value, str):
        if name.endswith("_pem"):
            return cut("\n".join(escaped(line) for line in value.split("\n")), PEM_MAX)
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): all_printable(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [all_printable(each) for each in value]
    return value
