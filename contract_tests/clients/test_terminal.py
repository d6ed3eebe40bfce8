"""What only happens on a terminal: questions, progress, colours. Run on a pseudo-terminal."""

import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from contract_tests.clients.stand_in import ROOT, ControlPlane

DEADLINE_S = 60.0
PROGRAM = "from menagerie.__main__ import main; main()"

Play = Callable[..., tuple[int, str]]


@pytest.fixture
def play(home: Path) -> Play:
    """Run a command on a terminal, answer each question as it is asked, return code and screen."""

    def played(
        *argv: str, answers: dict[str, str] | None = None, columns: int = 120
    ) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *argv],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": str(columns)},
            start_new_session=True,
        )
        os.close(theirs)
        try:
            screen = watched(ours, dict(answers or {}))
            return child.wait(DEADLINE_S), screen
        finally:
            os.close(ours)
            if child.poll() is None:
                child.kill()
                child.wait()

    return played


def watched(terminal: int, answers: dict[str, str]) -> str:
    """Read the screen to its end; type an answer when its question is on it."""
    screen = b""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        with contextlib.suppress(OSError):  # the other end is closed
            read = os.read(terminal, 65536)
            screen += read
            for question in [one for one in answers if one.encode() in screen]:
                os.write(terminal, f"{answers.pop(question)}\n".encode())
            if read:
                continue
        break
    return screen.decode()


@pytest.mark.nightly
def test_what_cannot_be_undone_is_asked_about(play: Play, plane: ControlPlane) -> None:
    sales = plane.world.add("sales")
    for wrong in ("y", "sale", ""):
        code, screen = play(
            "instances", "erase", "sales", answers={"To continue, type sales": wrong}
        )
        assert (code, "cannot be restored" in screen) == (2, True), screen
    assert not plane.asked("POST", "/erase")
    play("instances", "erase", "sales", answers={"To continue, type sales": "sales"})
    play("instances", "erase", sales["id"], "--yes")
    assert len(plane.asked("POST", "/erase")) == 2


@pytest.mark.nightly
def test_passwords_are_asked_for_and_not_shown(play: Play, plane: ControlPlane) -> None:
    code, screen = play("login", answers={"Email": "ada@example.com", "Password": "correct-horse"})
    assert code == 0, screen
    assert "correct-horse" not in screen
    assert plane.asked("POST", "/sessions")[0].body["password"] == "correct-horse"
    argv = ("sessions", "create", "--email", "ada@example.com")
    code, screen = play(*argv, answers={"password": "correct-horse"})
    assert (code, "correct-horse" in screen) == (0, False), screen


def test_waiting_shows_where_it_is(play: Play) -> None:
    order = ("instances", "create", "--engine", "duckdb", "--size", "f0", "--name", "w")
    code, screen = play(*order, "--wait")
    assert code == 0
    assert "w is provisioning, waiting for running" in screen


@pytest.mark.nightly
def test_json_is_coloured_and_ids_are_whole(play: Play, plane: ControlPlane) -> None:
    sales = plane.world.add("sales", scopes=["x" * 90])
    _, screen = play("instances", "get", "sales", "-o", "json")
    assert "\x1b[" in screen
    _, screen = play("instances", "list")
    assert sales["id"] in screen


@pytest.mark.nightly
def test_connect_talks_and_leaves(play: Play, plane: ControlPlane, home: Path) -> None:
    plane.world.add("sales")
    answers = {"sales> ": "SELECT 40 + 2 AS sum;", "1 row (": "\\q"}
    code, screen = play("connect", "sales", answers=answers)
    assert (code, "42" in screen) == (0, True), screen
    history = home / "cache" / "menagerie" / "history"
    assert "40 + 2" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


@pytest.mark.nightly
def test_a_narrow_terminal_says_what_it_has_no_room_for(plane: ControlPlane, play: Play) -> None:
    sales = plane.world.add("sales")
    code, screen = play("instances", "list", columns=60)
    assert code == 0
    assert sales["id"] in screen
    assert "sales" in screen
    assert "columns not shown" in screen
    assert "columns not shown" not in play("instances", "list", columns=200)[1]
