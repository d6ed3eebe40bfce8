"""The guide tells each reason that a response is refused for, in the words of the refusal."""

import re
from pathlib import Path

from control.sso.saml.reasons import REASONS

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "sso.md"


def test_the_guide_has_each_reason() -> None:
    section = GUIDE.read_text().partition("### What a refused response means")[2]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", section.partition("\n## ")[0], re.MULTILINE)
    assert dict(rows) == {name: f"{text[:1].upper()}{text[1:]}." for name, text in REASONS.items()}
