"""The folder in which the processes of one gunicorn keep their figures; new at each start."""

import os
import shutil
import tempfile
from typing import Final

VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX: Final = "menagerie-metrics-"


def make() -> dict[str, str]:
    """The variable that tells the processes of it. Only this user can look into it."""
    return {VARIABLE: tempfile.mkdtemp(prefix=_PREFIX)}


def remove() -> None:
    folder = os.environ.get(VARIABLE, "")
    if os.path.basename(folder).startswith(_PREFIX):  # noqa: PTH119 -- empty where there is none
        shutil.rmtree(folder, ignore_errors=True)


def is_shared() -> bool:
    """Whether this process is one of several that keep their figures together."""
    return VARIABLE in os.environ
