"""Packages of npm, as pinned in a package-lock.json, installed once into a cache folder."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from clients import private_files

PINNED: Final = Path(__file__).parent / "node"
INSTALL_S: Final = 200


def node_modules() -> Path:
    """The drivers: the folder that NODE_PATH takes; skips where there is no Node.js."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node or npm is not installed")
    return installed(PINNED)


def installed(pinned: Path) -> Path:
    """The folder of the packages that the lock in `pinned` names."""
    lock = (pinned / "package-lock.json").read_bytes()
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "menagerie-tests" / f"node-{hashlib.sha256(lock).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with private_files.locked(folder / "lock"):
        if not (folder / "installed").exists():
            _install(pinned, folder)
            (folder / "installed").touch()
    return folder / "node_modules"


def _install(pinned: Path, folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(pinned / name, folder / name)
    done = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
