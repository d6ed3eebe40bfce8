"""Builds the site: `python -m tools.site [FOLDER]`, by default into site/."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.site import pages

_COLOR = re.compile(r"\x1b\[[\d;]*m")
CONFIGURATION = Path(__file__).with_name("zensical.toml")
ROOT = Path(__file__).resolve().parents[2]


def build(root: Path, into: Path) -> str:
    """Puts the site there; where a link leads nowhere nothing, and the faults are returned."""
    with tempfile.TemporaryDirectory(prefix="menagerie-site-") as name:
        folder = Path(name)
        pages.stage(root, folder / "docs")
        shutil.copy(CONFIGURATION, folder)
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            return _COLOR.sub("", done.stdout + done.stderr)
        shutil.rmtree(into, ignore_errors=True)
        shutil.copytree(folder / "site", into)
    return ""


def main(arguments: list[str]) -> int:
    into = Path(arguments[0]) if arguments else ROOT / "site"
    faults = build(ROOT, into)
    if faults:
        print(faults, file=sys.stderr)
        return 1
    print(f"built {into}; to see it: python3 -m http.server --directory {into}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
