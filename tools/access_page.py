"""Write docs/who-may-do-what.md anew: the permission of each operation, and the roles with it.

usage: python -m tools.access_page     run by `make fix`
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from pathlib import Path
from typing import Any, Final

from control.policy.permissions import PROJECT_ROLES, ROLES, SUPPORT, TEAM, TEAM_ROLES
from specserver import Document
from tools import usage

Row = tuple[str, ...]

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "who-may-do-what.md"

# What the page says before its tables.
HEAD: Final = Path(__file__).with_name("access_page_head.md")
_PEOPLE: Final = {
    "none": "none: no sign-in needed",
    "self": "none: whoever is signed in",
}
_ASSURANCE: Final = {
    "mfa": "second factor",
    "second_factor": "second factor if enrolled",
    "step_up": "second factor if enrolled, in sessions",
}
COLUMNS: Final = (
    *("Operation", "Permission", "Scope", "Also asked"),
    *("In the organization", "In a team", "In a project", "Support"),
)


def text() -> str:
    """The whole page."""
    document = Document.load(ROOT / "openapi.yaml")
    groups = {tag: one["name"] for one in document.raw["x-tagGroups"] for tag in one["tags"]}
    areas: dict[str, list[Row]] = {name: [] for name in dict.fromkeys(groups.values())}
    for _, _, operation in document.operations():
        areas[groups[operation["tags"][0]]].append(row(operation))
    lines = (line for one in areas.items() for line in (*_section(*one), ""))
    return "\n".join([HEAD.read_text(), *lines]).rstrip() + "\n"


def _section(area: str, rows: list[Row]) -> Iterator[str]:
    """Without the columns that say nothing of any operation in it."""
    filled = [any(column) for column in zip(*rows, strict=True)]
    yield from (f"## {area}", "", _line(compress(COLUMNS, filled)), "|---" * sum(filled) + "|")
    yield from (_line(compress(each, filled)) for each in rows)


def row(operation: Mapping[str, Any]) -> Row:
    """What the operation asks for, and who has it."""
    rule = operation["x-authorize"]
    permission, name = rule["permission"], f"`{operation['operationId']}`"
    if permission in _PEOPLE:
        nobody = _PEOPLE[permission] if "scope" not in rule else "none: whoever belongs to it"
        return name, nobody, "", _asked(rule), "", "", "", ""
    scope = "team" if permission in TEAM else "organization"
    # What only an owner is let do, no role in a team and no grant leads to.
    owner = rule.get("role") == "owner"
    held_by = (
        "owner" if owner else _holders(ROLES, permission),
        "" if owner else _holders(TEAM_ROLES, permission),
        "" if owner else _holders(PROJECT_ROLES, permission),
        "" if owner or permission not in SUPPORT else "yes",
    )
    return name, f"`{permission}`", scope, _asked(rule), *held_by


def _holders(roles: Mapping[str, frozenset[str]], permission: str) -> str:
    held = [role for role, permissions in roles.items() if permission in permissions]
    return "all" if len(held) == len(roles) else ", ".join(held)


def _asked(rule: Mapping[str, Any]) -> str:
    asked = ["session"] if rule.get("session") == "user" else []
    asked += ["owner"] if rule.get("role") == "owner" else []
    asked += [_ASSURANCE[rule["assurance"]]] if rule.get("assurance", "none") != "none" else []
    return "; ".join(asked)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str]) -> int:
    if usage.is_asked(arguments, __doc__):
        return 0
    PAGE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
