"""How `menagerie api` becomes gunicorn, before it loads what gunicorn's own processes load."""

import os
import sys
from typing import NoReturn

from menagerie import open_files
from menagerie.settings import Settings, environment


def become(settings: Settings) -> NoReturn:
    """Serve the API until SIGTERM, by processes whose settings are menagerie.gunicorn_settings."""
    open_files.raise_limit()
    command = [
        *(sys.executable, "-m", "gunicorn"),
        *("--config", "python:menagerie.gunicorn_settings", "menagerie.asgi:app"),
    ]
    os.execve(sys.executable, command, os.environ | environment(settings))  # noqa: S606 -- our own
