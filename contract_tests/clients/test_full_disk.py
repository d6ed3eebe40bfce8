"""What the system refuses the command line: one line, and nothing is lost that need not be."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients import private_files
from clients.cli.repl import line_editing
from clients.credentials import CredentialFile
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ROOT, ControlPlane

FULL = Path("/dev/full")


@pytest.fixture
def unwritable(folder: Path) -> Path:
    """The file of credentials, for which no lock can be made: also root is refused."""
    path = folder / "config" / "menagerie" / "credentials.json"
    path.with_name(".credentials.json.lock").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        CredentialFile().forget("x", "y")
    return path


@pytest.fixture
def open_umask() -> Iterator[None]:
    former = os.umask(0)
    yield
    os.umask(former)


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_stdout_is_one_line(folder: Path) -> None:
    for words in (["--version"], ["profiles", "show"]):
        with FULL.open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "menagerie", *words],
                cwd=ROOT,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert (done.returncode, done.stderr) == (1, "error: No space left on device\n"), words


def test_a_file_that_cannot_be_written_is_named(folder: Path, cli: Cli) -> None:
    (folder / "config").mkdir()
    (folder / "config" / "menagerie").symlink_to(folder / "nowhere")
    ran = cli("profiles", "set", "one", "base_url=http://x")
    assert (ran.code, ran.err.count("\n")) == (1, 1), ran
    assert ran.err.startswith("error: ")
    assert str(folder) in ran.err


def test_a_query_shows_its_rows_where_the_credential_cannot_be_stored(
    home: Path, plane: ControlPlane, unwritable: Path, cli: Cli
) -> None:
    plane.world.add("sales")
    ran = cli("query", "sales", "SELECT 6 * 7 AS n", "-o", "csv")
    assert (ran.code, ran.out) == (0, "n\r\n42\r\n"), ran.err
    assert "warning: cannot store the credential: " in ran.err
    assert not unwritable.exists()


def test_a_rotated_credential_is_shown_where_it_cannot_be_stored(
    home: Path, plane: ControlPlane, unwritable: Path, cli: Cli
) -> None:
    plane.world.add("sales")
    ran = cli("credentials", "sales", "--rotate", "--store", "-o", "json")
    assert (ran.code, '"password"' in ran.out) == (0, True), ran.err
    assert "warning: cannot store the credential: " in ran.err


@pytest.mark.usefixtures("open_umask")
def test_every_folder_that_is_made_is_private(tmp_path: Path) -> None:
    private_files.write(tmp_path / "a" / "b" / "file", "text")
    with private_files.locked(tmp_path / "c" / "d" / "file"):
        pass
    made = [each for each in tmp_path.rglob("*") if each.is_dir()]
    assert len(made) == 4
    assert {stat.S_IMODE(each.stat().st_mode) for each in made} == {0o700}
    # What is there stays as it is.
    shared = tmp_path / "shared"
    shared.mkdir(0o755)
    private_files.write(shared / "file", "text")
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755
    with pytest.raises(FileExistsError):
        private_files.make_folder(tmp_path / "a" / "b" / "file")


@pytest.mark.usefixtures("open_umask")
def test_the_history_is_private_and_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    history = tmp_path / "cache" / "menagerie" / "history"
    with line_editing(history):
        pass
    folders = (history.parent, history.parent.parent)
    assert {stat.S_IMODE(each.stat().st_mode) for each in folders} == {0o700}
    with line_editing(history / "a file is no folder" / "history"):
        pass
