"""Whatever an engine puts into its folders: nothing outside of them is reached through it."""

import os
import stat
from pathlib import Path

import pytest

from cell.runtime import engine_files

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
UID = 298_900


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A folder of an engine's."""
    made = tmp_path / "run"
    made.mkdir()
    return made


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A folder of the host's, with a file."""
    made = tmp_path / "host"
    made.mkdir()
    made.chmod(0o755)
    (made / "file").write_text("ours")
    return made


@ROOT
def test_a_link_in_the_place_of_a_new_folder_is_not_followed(top: Path, canary: Path) -> None:
    (top / "own").symlink_to(canary)
    before = canary.stat()
    engine_files.make_folder(top, "own", UID)
    after = canary.stat()
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)
    assert (canary / "file").read_text() == "ours"
    made = (top / "own").lstat()
    assert stat.S_ISDIR(made.st_mode)
    assert (stat.S_IMODE(made.st_mode), made.st_uid, made.st_gid) == (0o700, UID, UID)


def test_what_lay_in_the_place_of_a_new_folder_is_gone(top: Path, canary: Path) -> None:
    inside = top / "own" / "deeper"
    inside.mkdir(parents=True)
    (inside / "link").symlink_to(canary)
    (inside / "file").touch()
    engine_files.make_folder(top, "own", None)
    assert list((top / "own").iterdir()) == []
    assert (canary / "file").read_text() == "ours"
    os.mkfifo(top / "pipe")
    engine_files.make_folder(top, "pipe", None)
    assert (top / "pipe").is_dir()
