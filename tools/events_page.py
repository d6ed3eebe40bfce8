"""Write docs/events.md anew: what events are, and the table of their kinds.

usage: python -m tools.events_page     run by `make fix`
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from control.events.kinds import SENT_TO, kinds_of
from specserver import Document
from tools import usage

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "events.md"
HEAD: Final = Path(__file__).with_name("events_page_head.md")


def text() -> str:
    """The whole page."""
    return HEAD.read_text() + "\n".join(_table()) + "\n"


def _table() -> Iterator[str]:
    document = Document.load(ROOT / "openapi.yaml", checked=True).raw
    yield "| Kind | When | Instance |"
    yield "|---|---|---|"
    for kind in kinds_of(json.dumps(document).encode()).values():
        only = "" if kind.sent_to == SENT_TO else f" (sent to {', '.join(kind.sent_to)} only)"
        yield f"| `{kind.name}` | {kind.summary}{only} | {'yes' if kind.about_instance else ''} |"


def main(words: list[str]) -> int:
    if not usage.is_asked(words, __doc__):
        PAGE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
