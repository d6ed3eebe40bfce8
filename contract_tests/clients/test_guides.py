"""Each command line that a guide shows exists, with its options, and its JSON is JSON."""

import json
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from clients.cli import app
from clients.cli.app import ALIASES, SHORTCUT_MODULES
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ROOT
from menagerie import commands

# docs/cli.md is held to more, by test_documentation.py, and decisions tell of their time.
GUIDES = [
    ROOT / "README.md",
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.name != "cli.md" and "decisions" not in page.parts
    ),
]
_SET_APART = re.compile(r"^ {3,}(?:\S+/)?menagerie ((?:[^\n\\]|\\\n)*)", re.MULTILINE)
# What comes behind a command in a shell.
_ENDS = ("|", ">", "<", "&", "&&", ";", "#")
# A command whose second word is no command of its own.
_PLAIN = {*SHORTCUT_MODULES, *ALIASES} - {"profiles", "completion"}


def shown(page: Path) -> list[list[str]]:
    """The words of each line that is set apart and has an option, without what surrounds it."""
    found = []
    for line in _SET_APART.findall(page.read_text(encoding="utf-8")):
        try:
            typed = shlex.split(line.replace("…", "x").replace("\\\n", " "))
        except ValueError:
            continue  # it goes on in the next line
        end = next((at for at, one in enumerate(typed) if one in _ENDS), len(typed))
        if any(one.startswith("--") for one in typed[:end]):
            found.append(typed[:end])
    return found


@pytest.fixture(autouse=True, scope="module")
def _operators_commands() -> Iterator[None]:
    registered = list(app.registered_commands)
    commands.register(app)
    yield
    app.registered_commands[:] = registered


_helps: dict[tuple[str, ...], str] = {}


def _help(cli: Cli, *named: str) -> str:
    if named not in _helps:
        page = cli(*named, "--help")
        _helps[named] = page.out if page.code == 0 else ""
    return _helps[named]


def faults(cli: Cli, typed: list[str]) -> Iterator[str]:
    """What of a command line is not as its help says."""
    while typed[0] in ("--profile", "-o"):
        typed = typed[2:]
    named = list(takewhile(lambda one: not one.startswith("-"), typed[:2]))
    page = _help(cli, *named[: 1 if typed[0] in _PLAIN else 2]) or _help(cli, typed[0])
    for flag, value in zip(typed, [*typed[1:], ""], strict=True):
        if not re.match(r"--[a-z]", flag):
            continue
        told = re.search(rf"(?<![\w-]){re.escape(flag.partition('=')[0])}\b(?!-)(?: (\S+))?", page)
        if not told:
            yield f"no {flag}"
        elif told.group(1) == "JSON" and not value.startswith(("@", "-", "$")):
            try:
                json.loads(value)
            except ValueError:
                yield f"{flag} takes JSON, not {value}"


@pytest.mark.parametrize("page", GUIDES, ids=lambda one: one.stem)
def test_each_command_line_of_a_guide_can_be_pasted(page: Path, folder: object, cli: Cli) -> None:
    wrong = {" ".join(line): list(faults(cli, line)) for line in shown(page)}
    assert {line: found for line, found in wrong.items() if found} == {}


def test_what_cannot_be_pasted_is_found(folder: object, cli: Cli) -> None:
    """Or the test above could not fail."""
    line = "scim-groups update sgrp_x --team team_id=team_x,role=operator --unheard-of"
    assert list(faults(cli, line.split())) == [
        "--team takes JSON, not team_id=team_x,role=operator",
        "no --unheard-of",
    ]
    assert sum(len(shown(page)) for page in GUIDES) > 60
