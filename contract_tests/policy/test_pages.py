"""The pages about permissions and errors say what the code does."""

import re
from pathlib import Path

from control.policy.permissions import CATALOGUE, ROLES
from specserver import problems

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("control", "handlers", "specserver", "storage")


def rows(page: str) -> list[list[str]]:
    lines = (ROOT / "docs" / page).read_text().splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line[:1] == "|"
    ]


def test_the_table_of_permissions_is_the_codes() -> None:
    header, _, *table = rows("permissions.md")
    assert header[2:] == list(ROLES)
    written = {
        row[0].strip("`"): (
            row[1],
            {r for r, mark in zip(header[2:], row[2:], strict=True) if mark},
        )
        for row in table
    }
    assert written == {
        name: (means, {role for role in ROLES if name in ROLES[role]})
        for name, means in CATALOGUE.items()
    }


def test_every_error_code_is_explained() -> None:
    explained = {
        (int(row[0]), code)
        for row in rows("errors.md")
        if row[0].isdecimal()
        for code in re.findall(r"`([a-z_]+)`", row[1])
    }
    known = {(status, code) for status, (_, code) in problems._NAMES.items()}
    assert known <= explained
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    raised = {
        code for path in sources for code in re.findall(r'\bcode="([a-z_]+)"', path.read_text())
    }
    assert "permission_missing" in raised
    assert raised <= {code for _, code in explained}
