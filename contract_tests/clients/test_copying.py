"""What pg_dump and psql say while they run, which has names and notices of the server in it."""

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from clients.cli import copying

SAID = b'ERROR: table "\x1b]0;OWNED\x07\x1b[31m\xff"\r\n' + b"x" * 3 + b"\x9b31m\n"


def says(folder: Path, *, status: int = 0) -> tuple[list[str], copying.ConnectionTarget]:
    """A program that says it on stderr and writes `copy` to stdout."""
    script = folder / "says.py"
    script.write_text(
        f"import os, sys\nos.write(2, {SAID!r})\nos.write(1, b'copy')\nsys.exit({status})"
    )
    return [sys.executable, str(script)], copying.ConnectionTarget("shop", 17, dict(os.environ))


def terminal(monkeypatch: pytest.MonkeyPatch) -> int:
    """One in the place of stderr; answers the end from which what is shown is read."""
    ours, theirs = pty.openpty()
    monkeypatch.setattr(sys, "stderr", os.fdopen(theirs, "w", buffering=1))
    return ours


def shown(screen: int) -> str:
    text = b""
    while select.select([screen], [], [], 0)[0]:
        text += os.read(screen, 65536)
    return text.decode()


def test_on_a_terminal_it_is_shown_without_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = terminal(monkeypatch)
    words, target = says(tmp_path)
    with copying.started(words, target, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b"copy"
    assert shown(screen).splitlines() == [
        'ERROR: table "\ufffd]0;OWNED\ufffd\ufffd[31m\ufffd"',
        "xxx\ufffd31m",
    ]


def test_why_it_failed_is_on_the_terminal_before_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = terminal(monkeypatch)
    words, target = says(tmp_path, status=3)
    with (
        pytest.raises(copying.ToolFailed, match="ended with status 3"),
        copying.started(words, target, stdout=subprocess.DEVNULL),
    ):
        pass
    assert "OWNED" in shown(screen)


def test_in_a_file_it_is_as_it_was_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words, target = says(tmp_path)
    with copying.started(words, target, stdout=subprocess.DEVNULL):
        pass
    assert capfd.readouterr().err.encode(errors="surrogateescape").startswith(SAID[:20])
