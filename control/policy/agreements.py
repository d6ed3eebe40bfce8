"""The business associate agreement (BAA) that owners sign: its text, and which version it is."""

import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BYTES_MAX: Final = 200_000
_DATE: Final = re.compile(r"^Date: (\d{4}-\d{2}-\d{2})$", re.MULTILINE)


@dataclass(frozen=True)
class Agreement:
    """`version` names this text and no other: its date, and the SHA-256 of its bytes."""

    text: str
    date: str
    is_template: bool = False

    @classmethod
    def of(cls, text: str, *, is_template: bool = False) -> "Agreement":
        """Raises ValueError with what is wrong with the text."""
        if len(text.encode()) > BYTES_MAX:
            raise ValueError(f"the text has more than {BYTES_MAX} bytes")
        if "\0" in text:
            raise ValueError("the text has a NUL in it")
        found = _DATE.search(text)
        if found is None:
            raise ValueError("the text has no line `Date: 2026-11-29` with the date of its version")
        return cls(text, found.group(1), is_template)

    @functools.cached_property
    def version(self) -> str:
        return f"{self.date}-{hashlib.sha256(self.text.encode()).hexdigest()}"


@functools.cache
def template() -> Agreement:
    """The text that comes with Menagerie, for operators to replace by their own (`baa_text`)."""
    text = Path(__file__).with_name("baa_template.md").read_text(encoding="utf-8")
    return Agreement.of(text, is_template=True)
