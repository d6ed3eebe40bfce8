"""A run of the tests keeps no folder longer than it is used, and leaves none."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from contract_tests import folders
from contract_tests.habits.test_sizes import ROOT
from tools import run_tests
from tools.spread import is_spread, spread

MAKING = """
import pytest

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    cell, kept = folder.parent / "cell-1", folder.parent / "somebodys"
    cell.mkdir(), kept.mkdir()
    (folder / "home").mkdir()
    (folder / "home" / "sockets").symlink_to(cell)
    (folder / "home" / "outside").symlink_to(kept)
    yield folder
    assert folder.is_dir()

def test_own(shared, tmp_path):
    assert tmp_path.is_dir()

def test_shared(shared):
    assert (shared / "home").is_dir()
    assert (shared.parent / "cell-1").is_dir()
    assert not list(shared.parent.glob("test_own[0-9]"))
"""
AFTER = """
def test_after(tmp_path):
    assert not (tmp_path.parent / "shared0").exists()
    assert not (tmp_path.parent / "cell-1").exists()
    assert (tmp_path.parent / "somebodys").is_dir()
"""


def test_a_folder_goes_with_the_fixture_that_made_it(tmp_path: Path) -> None:
    (tmp_path / "test_1.py").write_text(MAKING)
    (tmp_path / "test_2.py").write_text(AFTER)
    words = ["-p", "contract_tests.folders", "-p", "no:cacheprovider", "-c", os.devnull]
    surroundings = {name: value for name, value in os.environ.items() if name != folders.KEPT}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(tmp_path)],
        cwd=ROOT,
        env=surroundings | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout


def test_a_run_has_a_temporary_folder_of_its_own_that_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with run_tests.temporary_folder() as folder:
        assert folder.parent == tmp_path
        (folder / "left").write_text("by a process that was killed")
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_the_disk_it_needs_says_so_first(monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage("/")._replace(free=287 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: free)
    with pytest.raises(SystemExit, match=r"need \d+ GiB in .*, which has 0\.3: make room"):
        run_tests.main(["contract_tests/habits/test_folders.py"])


def test_the_folders_of_a_run_lie_apart_on_the_disk(tmp_path: Path) -> None:
    words = ["stat", "--file-system", "--format=%T", str(tmp_path)]
    if subprocess.run(words, capture_output=True, check=True).stdout != b"ext2/ext3\n":
        pytest.skip("only ext4 places folders by a flag")
    assert not is_spread(tmp_path)
    spread(tmp_path)
    assert is_spread(tmp_path)
    assert is_spread(tmp_path.parent)  # by the fixture that makes them
    with run_tests.temporary_folder() as folder:
        assert is_spread(folder)


def test_a_file_system_that_cannot_spread_folders_is_left_alone() -> None:
    spread(Path("/proc"))


@pytest.fixture(scope="session")
def of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("session")


@pytest.fixture
def asking(request: pytest.FixtureRequest) -> Path:
    found = request.getfixturevalue("of_the_session")
    assert isinstance(found, Path)
    return found


@pytest.mark.parametrize("time", ["first", "second"])
def test_a_folder_of_the_session_does_not_go_with_who_asked_for_it_first(
    asking: Path, time: str
) -> None:
    assert asking.is_dir(), time
