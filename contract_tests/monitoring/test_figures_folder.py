"""The folder of figures goes with the processes that use it, also where these were killed."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from menagerie.monitoring import folder

HOLDS = """
import os, sys, time
from menagerie.monitoring import folder
given = folder.make()
program = "print(flush=True); __import__('time').sleep(600)"
print(given[folder.VARIABLE], flush=True)
os.execve(sys.executable, [sys.executable, "-c", program], os.environ | given)
"""
"""As `menagerie api` becomes gunicorn."""


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def holder() -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """A process that uses a folder, as of an hour ago."""
    command = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = Path(process.stdout.readline().strip())
        # It is another program by now.
        process.stdout.readline()
        aged(found)
        yield process, found
        process.kill()


def aged(path: Path) -> None:
    made = path.stat().st_mtime - 3_600
    os.utime(path, (made, made))


def test_one_that_was_killed_leaves_nothing(
    holder: tuple["subprocess.Popen[str]", Path], tmp_path: Path
) -> None:
    process, left = holder
    folder.make()
    assert left.is_dir(), "somebody uses it"
    process.kill()
    process.wait()
    made = Path(folder.make()[folder.VARIABLE])
    assert not left.exists()
    assert made.is_dir()
    assert len(list(tmp_path.iterdir())) == 2


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (tmp_path / "menagerie-metrics-link").symlink_to(kept)
    for name in ("menagerie-other", "menagerie-metrics-new", "menagerie-metrics-old"):
        (tmp_path / name).mkdir()
    (tmp_path / "menagerie-metrics-file").write_text("")
    for name in ("menagerie-metrics-old", "menagerie-other", "menagerie-metrics-file", "kept"):
        aged(tmp_path / name)
    folder.make()
    names = {each.name for each in tmp_path.iterdir()}
    assert {"kept", "menagerie-other", "menagerie-metrics-new", "menagerie-metrics-link"} <= names
    assert "menagerie-metrics-file" in names
    assert "menagerie-metrics-old" not in names
