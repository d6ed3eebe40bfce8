"""The command lines of the guides to people and permissions are lines that the program takes."""

import re
import shlex
from typing import Any

import pytest

from clients.cli import operations
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ROOT

PAGES = ("access.md", "permissions.md")
TEXTS = [(ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES]
# Those that are no operations, or ask somebody.
OTHERS = {"login", "mail", "support", "profiles"}


def lines() -> list[str]:
    """Without remarks, and an id in place of a command that finds one."""
    whole = re.sub(r"\\\n\s*", "", "\n".join(TEXTS))
    found = re.findall(r"^    (menagerie .*)$", whole, re.MULTILINE)
    plain = (re.sub(r"\$\([^)]*\)|  #.*|--profile work ", _stands_for, line) for line in found)
    return sorted({line.strip() for line in plain if not OTHERS & set(line.split()[:2])})


def _stands_for(found: re.Match[str]) -> str:
    return "ID" if found[0].startswith("$") else ""


def test_there_are_many() -> None:
    assert len(lines()) > 25


@pytest.mark.parametrize("line", lines())
def test_a_line_of_the_guides_is_taken(
    line: str, folder: object, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def note(operation: Any, options: Any, values: Any) -> None:
        given = [one for one in options if values[one.keyword] not in (None, "-")]
        # Raises for what the document does not allow.
        assert all(one.value(values[one.keyword]) is not None for one in given)
        taken.append(operation.id)

    monkeypatch.setattr(operations, "execute", note)
    ran = cli(*shlex.split(line)[1:])
    assert ran.code == 0, ran.err
    assert taken
