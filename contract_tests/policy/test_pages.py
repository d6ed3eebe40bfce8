"""The pages about permissions and errors say what the code does."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from control.policy.permissions import CATALOGUE, ROLES
from specserver import problems

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("cell", "control", "handlers", "instance_services", "specserver", "storage")
# A code that came from elsewhere, or no code of a problem.
PASSED_ON = {"code", "error.code", "problem.code", "document.get('x-code')"}


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


def test_every_error_code_is_explained_and_no_other() -> None:
    """By the rooms that raise it; of those that a status has by itself, any may be raised."""
    explained = {
        (int(row[0]), code)
        for row in rows("errors.md")
        if row[0].isdecimal()
        for code in re.findall(r"`([a-z_]+)`", row[1])
    }
    known = {(status, code) for status, (_, code) in problems._NAMES.items()}
    assert known <= explained
    raised = {
        code for room in ROOMS for path in (ROOT / room).rglob("*.py") for code in raised_in(path)
    }
    assert "permission_missing" in raised
    named = {code for _, code in explained}
    assert (raised - named, named - raised - {code for _, code in known}) == (set(), set())


def raised_in(path: Path) -> Iterator[str]:
    """What the calls of a module are given as `code`, be it a text, a constant or a default."""
    tree = ast.parse(path.read_text())
    constants = {
        ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target): node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "code":
            value = constants.get(ast.unparse(node.value)) or node.value
            if isinstance(value, ast.Constant):
                yield str(value.value)
            else:
                assert ast.unparse(value) in PASSED_ON, f"{path}:{node.lineno}: name the code"
        elif isinstance(node, ast.arguments):
            defaults = zip(reversed(node.args), reversed(node.defaults), strict=False)
            given = [ast.literal_eval(one) for arg, one in defaults if arg.arg == "code"]
            yield from (one for one in given if isinstance(one, str))
