"""Files that an engine removes at its next start, removed before its storage is measured.

One that was killed leaves them. They would count, and could keep it from starting for good.
"""

import os
import re
from pathlib import Path


def remove(data: Path, pattern: str) -> None:
    """Files whose path within the data matches; only while no engine runs.

    Links are not followed, whatever the engine has put there.
    """
    wanted = re.compile(pattern)
    for here, _, names, descriptor in os.fwalk(data, follow_symlinks=False):
        within = os.path.relpath(here, data)
        for name in names:
            if wanted.fullmatch(f"{within}/{name}"):
                os.unlink(name, dir_fd=descriptor)
