"""Holds what is left out of the imports of a library: it is not loaded, and others can load it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import {module}
loaded = {left_out} & {{name.partition(".")[0] for name in sys.modules if sys.modules[name]}}
assert not loaded, loaded
"""
LATER = """
import specserver
import flask, httpx, requests
from starlette.testclient import TestClient
print(flask.Flask.__module__, httpx.Client.__module__, requests.get.__module__)
print(TestClient.__module__)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("module", "left_out"),
    [
        ("instance_services.duckdb.__main__", {"flask", "httpx", "requests", "rich", "pandas"}),
        ("menagerie.part, menagerie.data_plane", {"flask", "requests", "rich"}),
        ("menagerie.part, menagerie.control_plane, httpcore", {"requests", "rich", "trio"}),
        # It becomes gunicorn, which would load them once more.
        ("menagerie.under_gunicorn", {"connexion", "control", "specserver", "sqlalchemy"}),
        ("menagerie.gunicorn_settings, menagerie.control_plane, httpcore", {"rich", "trio"}),
    ],
)
def test_what_a_process_never_uses_is_not_loaded(module: str, left_out: set[str]) -> None:
    _run(PROGRAM.format(module=module, left_out=left_out))


@pytest.mark.nightly
def test_what_was_left_out_can_be_loaded_later() -> None:
    told = _run(LATER).split()
    assert told == ["flask.app", "httpx", "requests.api", "starlette.testclient"]


def _run(program: str) -> str:
    words = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
