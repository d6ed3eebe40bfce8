"""Completion in real shells: what other people named things runs nothing and needs no quotes."""

import os
import pty
import re
import select
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clients.cli import shells
from clients.profiles import Profiles
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ROOT, ControlPlane
from contract_tests.clients.test_completing import Complete, complete

__all__ = ["complete"]

DEADLINE_S = 60.0
MARK = "pwned"
# Each runs `touch pwned` in a shell that evaluates it, quoted in one way or the other.
HOSTILE = [
    rf"\$(touch {MARK})",
    f"$(touch {MARK})",
    rf"\\$(touch {MARK})",
    f"`touch {MARK}`",
    rf"\`touch {MARK}`",
    f"');touch {MARK};('",
    f'"));touch {MARK};(("',
    f"x;touch${{IFS}}{MARK}",
    f"x$(touch${{IFS}}{MARK})",
    f"x\ntouch {MARK}\n",
    f"-x=$(touch {MARK})",
    "*",
    "a b",
    "~root",
    "x\x1b]0;title\x07\u202e",
]
PROGRAM = "from menagerie.__main__ import main; main()"
STARTS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
PREPARES = {
    "bash": "source ./completion",
    "zsh": "autoload -Uz compinit; compinit -u -D; source ./completion;"
    " compdef _menagerie_completion menagerie",
}


class Terminal:
    """An interactive shell, and what it has written."""

    def __init__(self, shell: str, folder: Path) -> None:
        environment = os.environ | {
            "PATH": f"{folder}:{os.environ['PATH']}", "TERM": "xterm", "PS1": "% ", "HISTFILE": "",
        }  # fmt: skip
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(STARTS[shell][0], STARTS[shell], environment)
        self.screen = ""

    def types(self, text: str, until: Callable[[str], bool]) -> str:
        """Type the text and read until enough of the answer is there."""
        seen = ""
        os.write(self.end, text.encode())
        deadline = time.monotonic() + DEADLINE_S
        while not until(seen):
            assert time.monotonic() < deadline, repr(seen)
            if select.select([self.end], [], [], 0.1)[0]:
                seen += os.read(self.end, 65_536).decode(errors="replace")
        return seen

    def close(self) -> None:
        os.close(self.end)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture(params=["bash", "zsh"])
def terminal(request: pytest.FixtureRequest, home: Path, cli: Cli) -> Iterator[Terminal]:
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = home / "menagerie"
    # The program marks its end, so that the test knows when the shell has its answer.
    python = f"{shlex.quote(sys.executable)} -c {shlex.quote(PROGRAM)}"
    text = f"#!/bin/sh\nPYTHONPATH={ROOT} {python}\necho >>asked\n"
    program.write_text(text)
    program.chmod(0o755)
    (home / "completion").write_text(cli("completion", "show", shell).out)
    opened = Terminal(shell, home)
    try:
        opened.types(f"{PREPARES[shell]}; echo rea''dy\n", lambda seen: "ready" in seen)
        yield opened
    finally:
        opened.close()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [
        rf"\$(touch {MARK})",
        # The other way to be evaluated, which test_no_word_means_anything_to_a_shell holds too.
        pytest.param(f"x$(touch${{IFS}}{MARK})", marks=pytest.mark.nightly),
    ],
)
def test_tab_and_enter_run_nothing(
    name: str, terminal: Terminal, plane: ControlPlane, home: Path
) -> None:
    made = plane.world.add(name)
    terminal.types("menagerie instances get \t", lambda seen: made["id"] in seen or MARK in seen)
    terminal.types("\x15echo do''ne\n", lambda seen: "done" in seen)
    assert not (home / MARK).exists()
    line = f"menagerie instances get {made['id'][:8]}\t"
    terminal.types(line, lambda seen: made["id"] in seen)
    terminal.types("\necho do''ne\n", lambda seen: "done" in seen)
    assert not (home / MARK).exists()


@pytest.mark.nightly
def test_a_plain_name_is_completed_in_real_shells(terminal: Terminal, plane: ControlPlane) -> None:
    plane.world.add("sales-2026")
    terminal.types("menagerie instances get sal\t", lambda seen: "sales-2026" in seen)


@pytest.mark.parametrize(
    ("line", "path", "shell"),
    [
        ("menagerie instances get ", "/instances", "bash"),
        ("menagerie query ", "/instances", "zsh"),
        ("menagerie projects get ", "/projects", "fish"),
        ("menagerie api-keys revoke ", "/api-keys", "bash"),
        ("menagerie api-keys revoke ", "/api-keys", "zsh"),
        ("menagerie instances create --size ", "sizes", "zsh"),
        ("menagerie instances create --region ", "regions", "bash"),
    ],
)
def test_no_word_means_anything_to_a_shell(
    line: str, path: str, shell: str, plane: ControlPlane, complete: Complete
) -> None:
    stem = "thing_01M82558CBVDST9ETGVA1EM"
    items = [
        {"id": f"{stem}{number:03}", "name": name, "email": name, "created_at": "x"}
        for number, name in enumerate(HOSTILE)
    ]
    items += [{"id": name} for name in HOSTILE]
    full = f"/v1/{path}" if path[0] != "/" else f"/v1/orgs/{plane.world.org_id}{path}"
    plane.script("GET", full, (200, {}, {"items": items, "next_cursor": None}))
    found = raw(complete, line, shell)
    assert f"{stem}000" in found, "ids stand for names that need quoting"
    assert_harmless(found, shell)


def raw(complete: Complete, line: str, shell: str) -> str:
    return complete(line, shell, whole=True)[0]


def assert_harmless(found: str, shell: str) -> None:
    if shell == "zsh":
        assert re.fullmatch(r"_arguments '\*: :\(\((\s*\"[^\"']*\"(:\"[^\"']*\")?)+\)\)'\s*", found)
        found = found.removeprefix("_arguments '*: :((").rstrip().removesuffix("))'")
        found = found.replace('"', "").replace(r"\\:", ":")
    assert not re.search(r"[$`\\'\"();&|<>*~!\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]", found)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_document_gives_no_shell_anything_to_run(
    shell: str, plane: ControlPlane, complete: Complete, cli: Cli
) -> None:
    """Its commands, options and values, and what it says of them."""
    hostile = f"\\$(touch {MARK})'`\"\x1b[31m\u202e"
    document = plane.document
    get = document["paths"]["/v1/orgs/{org_id}/instances"]["get"]
    get["summary"] = get["description"] = f"Lists [red]it[/red] {hostile}"
    get["parameters"] = [
        *get["parameters"],
        {"name": f"evil{hostile}", "in": "query", "description": hostile,
         "schema": {"type": "string", "enum": [hostile, "x", f"y{hostile}"]}},
    ]  # fmt: skip
    document["paths"]["/v1/evil"] = {
        "get": {"operationId": f"instances.ev{hostile}", "summary": hostile, "responses": {}}
    }
    document["paths"]["/v1/evil2"] = {
        "get": {"operationId": f"inst{hostile}.list", "summary": hostile, "responses": {}}
    }
    cli("instances", "bogus")  # fetches the document
    found = raw(complete, "menagerie instances ", shell)
    assert "list" in found
    assert_harmless(found, shell)
    others = ("menagerie inst", "menagerie instances list --e") if shell == "zsh" else ()
    for line in others:
        assert_harmless(raw(complete, line, shell), shell)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_was_typed_is_not_given_back(shell: str, home: Path, complete: Complete) -> None:
    """Files and profiles are the shell's and the person's own; a typed path is not evaluated."""
    kept = Profiles.read()
    kept.named = {f"$(touch {MARK})": {"base_url": "http://127.0.0.1:9"}}
    kept.write()
    for line in (rf"menagerie load sales \\\$\(touch\ {MARK}\)", "menagerie profiles use "):
        assert MARK not in raw(complete, line, shell)


def test_descriptions_keep_what_people_read() -> None:
    said = shells.description("Ada's `--size` of [bold]größe[/bold]:\n$(x) \\ \u202e")
    assert said == "Ada\N{RIGHT SINGLE QUOTATION MARK}s --size of bold größe /bold x"
