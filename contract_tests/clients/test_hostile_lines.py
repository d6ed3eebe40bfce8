"""Lines to paste hold each value as one word or literal, whatever is in it.

A cell's answer with such values is refused; here they come from behind that.
"""

import ast
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from clients.cli import demo, native
from clients.cli.command_context import CommandContext
from clients.cli.lines import CLIENTS, Place, curl, line
from clients.client import Client
from clients.credentials import Credential
from clients.profiles import Profile
from contract_tests.by_day import one_in
from contract_tests.clients.pasting import NODE, PYTHON
from contract_tests.clients.stand_in import ControlPlane

MARK: Final = "pwned"
CODE: Final = f'+__import__("os").system("touch {MARK}")+'
HOSTILE: Final = [
    f"$(touch {MARK})", f"`touch {MARK}`", f"'; touch {MARK}; '", f'"; touch {MARK}; "',
    "<password>", "<user>", f"<host>{CODE}", CODE, f'"{CODE}"', "\\", '\\"', "a\\", "%s%n",
]  # fmt: skip
CASES: Final = [(engine, client) for engine, known in CLIENTS.items() for client in known]
SHOWN: Final = "#!/bin/sh\nfor one; do printf '%s\\0' \"$one\"; done\ncat >config\n"


def places(engine: str) -> list[Place]:
    """One for each hostile value and member; all members at once where they name each other."""
    host = "db-1.local.localhost"
    sound = Credential("app", "s3cret", host, 5432, f"{engine}://{host}/app")
    made = [replace(sound, username=value) for value in HOSTILE]
    made += [replace(sound, password=value) for value in HOSTILE]
    made += [replace(sound, uri=f"x://{host}/{value}") for value in HOSTILE if "?" not in value]
    made += [replace(sound, username="<password>", password=CODE)]
    return [Place(engine, one, "/tmp/it's $(touch x)/ca.pem") for one in made]


def words(text: str, folder: Path) -> list[str]:
    """Paste the line into a shell whose programs only note what they are given."""
    for name in ("curl", "psql", "mariadb", "mysql", "redis-cli", "valkey-cli"):
        (folder / name).write_text(SHOWN)
        (folder / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        env={"PATH": f"{folder}:{os.environ['PATH']}", "PASSWORD": "s3cret"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not (folder / MARK).exists(), text
    return done.stdout.split("\0")


@pytest.mark.parametrize(("engine", "client"), one_in(2, CASES, several=True))
def test_each_value_is_one_literal(engine: str, client: str, tmp_path: Path) -> None:
    for place in places(engine):
        text = line(client, place)
        if client in PYTHON:
            assert_python(text, line(client, places(engine)[-1]))
        elif client in NODE:
            assert_javascript(text)
        elif place.credential.username in (HOSTILE[0], HOSTILE[-2], "<password>"):
            words(text, tmp_path)


def assert_python(text: str, other: str) -> None:
    """Whatever the values are, the program is the same but for its literals."""

    def shape(program: str) -> str:
        tree = ast.parse(program)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant):
                node.value = 0
        return ast.dump(tree)

    assert shape(text) == shape(other)


def assert_javascript(text: str) -> None:
    """Without the literals nothing of the values is left."""
    decoder = json.JSONDecoder()
    left = ""
    while text:
        if text[0] == '"':
            _, end = decoder.raw_decode(text)
            text = text[end:]
        else:
            left, text = left + text[0], text[1:]
    assert "__import__" not in left
    assert MARK not in left


def test_curl_is_given_the_login_as_it_is(tmp_path: Path) -> None:
    login = Credential('a"b', 'c\\d"\\', "db.example.com", 1, "x://y")
    words(curl(Place("duckdb", login, "ca.pem")), tmp_path)
    assert (tmp_path / "config").read_text() == 'user = "a\\"b:c\\\\d\\"\\\\"'


def test_lines_of_the_demo_hold_ids_and_names_as_they_are(
    plane: ControlPlane, client: Client, tmp_path: Path
) -> None:
    evil = f"'$(touch {MARK})`touch {MARK}`"
    create = client.document.operations["instances.create"]
    client.ca_file = evil
    client.base_url = "https://db.example.com"
    for org in (None, evil, "org_1"):
        context = CommandContext(Profile(), client, org)
        text = demo.curl(context, create, {"project_id": evil}, {"name": evil}, query="?a=b&c=d")
        given = words(f"ORG=org_2; {text}", tmp_path)
        assert f"/{org or 'org_2'}/projects/{evil}/" in given[given.index(evil) + 1]
        assert {"name": evil} == json.loads(given[given.index("-d") + 1])
    place = Place("postgres", Credential(evil, "p", "h.example.com", 1, "x://h/a"), evil)
    given = words(native.shell_line("postgres", place.credential, evil, "SELECT 1"), tmp_path)
    assert given[1:3] == ["-c", "SELECT 1"]
