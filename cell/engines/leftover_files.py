"""Files that an engine removes at its next start, removed before its storage is measured.

One that was killed leaves them. They would count, and could keep it from starting for good.
"""

import os
import re

from cell.runtime import engine_files
from cell.runtime.engine_files import EnginePath


def remove(data: EnginePath, pattern: str) -> None:
    """Files whose path within the data matches; only while no engine runs."""
    wanted = re.compile(pattern)
    for here, _, names, descriptor in engine_files.walk(data):
        for name in names:
            if wanted.fullmatch(str(here / name)):
                os.unlink(name, dir_fd=descriptor)
