"""How `menagerie api` becomes gunicorn, before it loads what gunicorn's own processes load."""

import os
import sys
from typing import NoReturn

from menagerie import open_files
from menagerie.inherited_settings import environment
from menagerie.monitoring import folder
from menagerie.settings import Settings


def become(settings: Settings) -> NoReturn:
    """Serve the API until SIGTERM, by processes whose settings are menagerie.gunicorn_settings."""
    open_files.raise_limit()
    # gunicorn imports from its working folder first, where another user's modules may lie.
    given = environment(settings) | (folder.make() if settings.metrics_port else {})
    os.chdir("/")
    command = [
        *(sys.executable, "-P", "-m", "gunicorn"),
        *("--config", "python:menagerie.gunicorn_settings", "menagerie.asgi:app"),
    ]
    os.execve(sys.executable, command, os.environ | given)  # noqa: S606 -- our own
