"""A first start on each kind of machine: root or not, bubblewrap or not, all open or closed.

Each runs in a mount namespace of its own, where the checkout and Python lie in a closed folder, or
where every user can enter, and where bubblewrap is there or is hidden.
"""

import ensurepip
import itertools
import json
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from cell.runtime.process import mark_of, strays
from contract_tests.cell.rig import until
from contract_tests.end_to_end.engine_clients import connect
from contract_tests.end_to_end.installation import Installation, place, wait_for
from contract_tests.end_to_end.test_engines import place_of
from tools import fetch_pip

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ("postgres", "duckdb", "valkey")
# Of all users but root the one that every machine knows by name, as initdb wants it.
OTHER_UID = pwd.getpwnam("nobody").pw_uid
# Covered by nothing but this.
STAGE = Path("/mnt")
IS_ROOT = os.geteuid() == 0
ALONE = ("unshare", "--mount", "--propagation", "private")
AS_OTHER = ("setpriv", f"--reuid={OTHER_UID}", f"--regid={OTHER_UID}", "--clear-groups")


def targets() -> list[Path]:
    """The folders that a start needs and that a person has put somewhere."""
    found = {ROOT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    own = {each for each in found if each.parts[1] not in ("usr", "bin", "lib")}
    return sorted(
        each for each in own if not any(each != o and each.is_relative_to(o) for o in own)
    )


def covered(target: Path, *, closed: bool) -> Path | None:
    """The folder to be replaced by an empty one in which nothing but the target lies."""
    shut = next((each for each in reversed(target.parents) if not _open(each)), None)
    return shut or (target.parent if closed else None)


def _open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)


def script(folder: Path, *, closed: bool, bubblewrap: bool, uid: int) -> str:
    """What makes the machine, and becomes the command that follows."""
    wanted = targets()
    covers = {found for each in wanted if (found := covered(each, closed=closed)) is not None}
    stashed = [(each, STAGE / f"{number}") for number, each in enumerate([*wanted, folder])]
    mode = "0700" if closed else "0755"
    lines = ["set -e", "umask 022", f"mount -t tmpfs none {STAGE}"]
    for target, stash in stashed:
        lines += [f"mkdir -p {stash}", f"mount --rbind {shlex.quote(str(target))} {stash}"]
    for cover in map(str, sorted(covers)):
        options = f"mode={mode},uid={uid}"
        lines += [
            f"mkdir -p {shlex.quote(cover)}",
            f"mount -t tmpfs -o {options} none {shlex.quote(cover)}",
        ]
    for target, stash in stashed:
        if any(target.is_relative_to(cover) for cover in covers):
            quoted = shlex.quote(str(target))
            lines += [f"mkdir -p {quoted}", f"mount --rbind {stash} {quoted}"]
    program = shutil.which("bwrap")
    if program is not None and not bubblewrap:
        # What cannot be executed is not found.
        lines.append(f"mount --bind /dev/null {os.path.realpath(program)}")
    return "\n".join([*lines, f"cd {shlex.quote(str(ROOT))}", 'exec "$@"'])


def words(folder: Path, *, root: bool, bubblewrap: bool, closed: bool) -> tuple[str, ...]:
    """The command that runs another on such a machine; skips where it cannot be had."""
    if root and not IS_ROOT:
        pytest.skip("only root can run the service as root")
    if bubblewrap and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    alone = ALONE if IS_ROOT else (*ALONE, "--user", "--map-current-user")
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine makes no mount namespaces")
    uid = 0 if root else OTHER_UID if IS_ROOT else os.geteuid()
    made = script(folder, closed=closed, bubblewrap=bubblewrap, uid=uid)
    become = AS_OTHER if IS_ROOT and not root else ()
    return (*alone, "sh", "-c", made, "sh", *become)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not of pytest's own, which nobody but who runs it can enter."""
    made = Path(tempfile.mkdtemp(prefix="machine-"))
    made.chmod(0o711)
    for name in ("home", "tmp"):
        (made / name).mkdir()
    yield made
    outside = made / "home" / "cell" / "outside"
    if outside.is_symlink():
        shutil.rmtree(outside.readlink())
    shutil.rmtree(made)


# By day the one that differs in everything from where all other tests run in CI.
BY_DAY = ("other", "none", "closed")
MACHINES = [
    each if each == BY_DAY else pytest.param(*each, marks=pytest.mark.nightly)
    for each in itertools.product(("root", "other"), ("bubblewrap", "none"), ("open", "closed"))
]


@pytest.mark.parametrize(("user", "confined", "lies"), MACHINES)
def test_the_first_start_gives_three_engines(
    user: str, confined: str, lies: str, folder: Path
) -> None:
    root, bubblewrap, closed = user == "root", confined == "bubblewrap", lies == "closed"
    within = words(folder, root=root, bubblewrap=bubblewrap, closed=closed)
    if IS_ROOT and not root:
        for name in ("home", "tmp"):
            os.chown(folder / name, OTHER_UID, OTHER_UID)
    (folder / "home").chmod(0o700)
    surroundings = {"HOME": str(folder / "tmp"), "TMPDIR": str(folder / "tmp")}
    installation = Installation(folder / "home", surroundings, within=within)
    try:
        installation.start()
        made = {each: place(installation, engine=each) for each in ENGINES}
        for engine, instance_id in made.items():
            wait_for(installation, instance_id, "running")
            with connect(engine, place_of(installation, instance_id)) as session:
                session.make()
                session.write([1, 2])
                assert session.read() == [1, 2]
            if root:
                until(partial(none_is_root, installation, instance_id), "no engine runs as root")
        assert "means=uid" not in installation.log or not root
        if root and not bubblewrap and not closed:
            # What engines enter was put where their users can go, with links in its place.
            installation.stop()
            installation.start()
            for engine, instance_id in made.items():
                wait_for(installation, instance_id, "running")
                with connect(engine, place_of(installation, instance_id)) as session:
                    assert session.read() == [1, 2]
    finally:
        end(installation)


def end(installation: Installation) -> None:
    """At once: a stop waits for data folders that the cell makes ahead, for orders that never come.

    How it stops is looked at where it starts again.
    """
    if installation.process is not None:
        installation.process.kill()
        installation.process.wait()
    installation.destroy()


def none_is_root(installation: Installation, instance_id: str) -> bool:
    """Of an engine's processes, but for bubblewrap's own, which waits for it.

    What begins beside it, to archive, begins as root to become the engine's user.
    """
    mark = f"{mark_of(str((installation.home / 'cell').resolve()))}/{instance_id}"
    found = [psutil.Process(pid) for pid in strays(mark)]
    engines = [process for process in found if process.name() != "bwrap"]
    assert engines
    return not any(0 in process.uids() for process in engines)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder for commands: of a root who has apt and no bubblewrap, and whose apt is noted."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "env", "find", "sort", "timeout", "touch"):
        (tools / name).symlink_to(shutil.which(name) or "")
    for name, does in (("id", "echo 0"), ("apt-get", 'echo "$@" >>asked; [ -e works ]')):
        (tools / name).write_text(f"#!{shutil.which('bash')}\n{does}\n")
        (tools / name).chmod(0o755)
    (tmp_path / ".venv").mkdir()
    return tmp_path


def installs(bare: Path, *words: str, **environment: str) -> tuple[str, str]:
    """What it says to people, and what it asked of apt."""
    (bare / "asked").write_text("")
    done = subprocess.run(
        [ROOT / "tools" / "system-packages", *words],
        cwd=bare,
        env={"PATH": str(bare / "bin"), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr, (bare / "asked").read_text()


def test_a_start_installs_bubblewrap_and_nothing_else_and_says_so(bare: Path) -> None:
    (bare / "works").touch()
    said, asked = installs(bare, "serve")
    assert said.count("\n") == 1
    assert "installing bubblewrap" in said
    assert [line.split()[-1] for line in asked.splitlines()] == ["bubblewrap"] * 2


def test_what_cannot_be_installed_keeps_no_start_and_is_not_tried_again(bare: Path) -> None:
    said, asked = installs(bare, "serve")
    assert "cannot be installed now" in said
    assert "update" in asked
    assert installs(bare, "serve") == ("", "")


@pytest.mark.parametrize("words", [(), ("serve",)])
def test_nothing_is_installed_where_that_is_not_wanted(bare: Path, words: tuple[str, ...]) -> None:
    said, asked = installs(bare, *words, MENAGERIE_NO_SYSTEM_PACKAGES="1")
    assert asked == ""
    assert ("MENAGERIE_NO_SYSTEM_PACKAGES is set" in said) == (words == ())


@pytest.mark.parametrize(
    ("surroundings", "said"),
    [
        ({}, "as that takes root and apt-get. Tests of the following are skipped:"),
        ({"CI": "true"}, "as that takes root and apt-get. Tests of the following will fail:"),
        ({"MENAGERIE_NO_SYSTEM_PACKAGES": "1"}, "_PACKAGES is set, so no system packages were"),
    ],
)
def test_what_is_not_tested_without_a_package_is_told(
    bare: Path, surroundings: dict[str, str], said: str
) -> None:
    (bare / "bin" / "id").write_text(f"#!{shutil.which('bash')}\necho 1000\n")
    by_day, asked = installs(bare, **surroundings)
    assert said in by_day
    assert "  PostgreSQL's own client\n" in by_day
    assert re.search("apt-get install .*postgresql-client", by_day)
    assert "nodejs" not in by_day
    at_night, _ = installs(bare, "nightly", **surroundings)
    assert "  drivers for Node.js\n" in at_night
    assert " nodejs npm" in at_night
    assert asked == ""


@pytest.mark.nightly  # it fetches what an installation needs
def test_a_python_that_comes_without_pip_gets_it(tmp_path: Path) -> None:
    """As Debian's does: its package python3 has neither pip nor what puts one into a venv."""
    if not IS_ROOT or subprocess.run([*ALONE, "true"], check=False).returncode != 0:
        pytest.skip("only root hides a part of Python here")
    hide = f"mount -t tmpfs none {shlex.quote(str(Path(ensurepip.__file__).parent))}"
    python = Path(sys.base_prefix, "bin", "python3")
    words = ["tools/install", "runtime", str(python), str(tmp_path / "venv")]
    subprocess.run([*ALONE, "sh", "-c", f'{hide} && exec "$@"', "sh", *words], cwd=ROOT, check=True)
    subprocess.run([tmp_path / "venv" / "bin" / "menagerie", "--version"], check=True)


def test_a_pip_that_is_not_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = {"files": [{"filename": fetch_pip.WHEEL, "url": "../pip.whl"}]}
    answers = iter([json.dumps(listed).encode(), b"another", b'{"files": []}'])
    monkeypatch.setattr(fetch_pip, "_get", lambda *_: next(answers))
    assert fetch_pip.main(str(tmp_path)) == 1
    assert "does not have the pinned SHA-256" in capsys.readouterr().err
    assert fetch_pip.main(str(tmp_path)) == 1
    assert "does not have pip-" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
