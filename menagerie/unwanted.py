"""Owns what is hidden from libraries: what they load wherever they find it, and nobody here uses.

Tracebacks in colour (`rich`, for the log's library) and another event loop (`trio`, for the HTTP
client) would take a tenth of a part's start, and a fifth of a command's time.
"""

import sys


def hide(*names: str) -> None:
    """Whoever looks for these from now on finds none; what is loaded already stays."""
    for name in names:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # says that there is none
