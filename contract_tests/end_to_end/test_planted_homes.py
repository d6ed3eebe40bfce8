"""What other users put into a home while it was open to them is not used, and not written through.

A line says what it is and what to do; what is open but nobody else's is closed, as elsewhere.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cell import layout
from contract_tests.by_day import one_in
from contract_tests.end_to_end.test_home import MENAGERIE, refused
from menagerie import home, keys
from menagerie.errors import SettingsError
from menagerie.settings import load

OTHER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Open to all, as it was before the first start."""
    made = tmp_path / "home"
    made.mkdir()
    made.chmod(0o777)
    return made


def planted(path: Path, content: str = "x" * 32, owner: int = OTHER) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    os.chown(path, owner, owner)


@as_root
@pytest.mark.parametrize(
    "name",
    [
        "keys/signing.key", "keys/seal.key", "keys/cursor.key", "keys/cell.id", "menagerie.db",
        "menagerie.db-wal", "endpoints.json", "ca.pem", "serve.lock", "parts.lock",
        "cell/seal.key", "cell/cell.db", "cell/cell.lock", "cell/pki/root.pem", "cell/routes.json",
        "cell/run/gateway.token", "cell/activity/x",
    ],
)  # fmt: skip
def test_a_file_of_another_user_is_refused(name: str, root: Path) -> None:
    path = root / name
    (root / "cell").mkdir(exist_ok=True)
    planted(path)
    before = path.stat()
    with pytest.raises(SettingsError) as told:
        home.prepare(root)
    assert str(told.value) == (
        f"{path} belongs to uid {OTHER}, so it is not used: remove it, or, if you know what it"
        f" holds, `chown -h root {path}`"
    )
    assert (path.read_text(), path.stat().st_uid) == ("x" * 32, before.st_uid)
    with pytest.raises(SettingsError, match="belongs to uid"):
        home.check(root)
    path.unlink()
    home.prepare(root)


@as_root
@pytest.mark.parametrize("name", ["keys", "cell", "cell/pki", "cell/activity"])
@pytest.mark.parametrize("is_link", [True, False])
def test_a_folder_of_another_user_is_refused(name: str, is_link: bool, root: Path) -> None:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    if is_link:
        path.symlink_to(root.parent)
    else:
        path.mkdir()
    os.chown(path, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(SettingsError, match=f"{path} belongs to uid {OTHER}"):
        home.prepare(root)


@as_root
@pytest.mark.parametrize("name", ["cell/outside", "cell/sockets", "cell/run", "cell/instances"])
def test_a_link_of_the_cell_is_its_own(name: str, root: Path) -> None:
    path = root / name
    path.parent.mkdir()
    path.symlink_to(root.parent)
    home.prepare(root)
    os.chown(path, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(SettingsError, match=f"{path} belongs to uid {OTHER}"):
        home.prepare(root)


def test_what_the_cell_moved_out_of_a_closed_home_is_its_own(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below /root without bubblewrap, and in the image: the second start finds the links."""
    outside = tmp_path / "outside"
    outside.mkdir()
    monkeypatch.setattr(layout, "OUTSIDE", (str(outside),))
    monkeypatch.setattr(layout, "passable", lambda path: path.is_relative_to(outside))
    home.prepare(root)
    moved = layout.Layout.make(root / "cell").opened()
    assert moved.open.is_relative_to(outside)
    home.check(root)
    home.prepare(root)


@pytest.mark.parametrize("name", ["ca.pem", "keys", "cell", "serve.lock", "keys/seal.key"])
def test_a_link_is_refused_and_not_followed(name: str, root: Path) -> None:
    target = root.parent / "target"
    target.write_text("secret")
    target.chmod(0o600)
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).symlink_to(target)
    with pytest.raises(SettingsError, match=f"{root / name} is a symbolic link"):
        home.prepare(root)
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("secret", 0o600)


@pytest.mark.parametrize("write", [keys.write_public, keys.write_private])
def test_a_file_is_put_in_the_place_of_a_link(
    write: Callable[[Path, bytes], None], tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_text("secret")
    target.chmod(0o600)
    (tmp_path / "ca.pem").symlink_to(target)
    (tmp_path / f".ca.pem.{os.getpid()}").symlink_to(target)
    write(tmp_path / "ca.pem", b"new")
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("secret", 0o600)
    assert not (tmp_path / "ca.pem").is_symlink()
    assert (tmp_path / "ca.pem").read_text() == "new"


@pytest.mark.parametrize(
    "name", one_in(4, ["serve.lock", "config.toml", "keys/cell.id", "cell/cell.lock"])
)
def test_a_pipe_is_refused(name: str, root: Path) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    os.mkfifo(root / name)
    told = refused([*MENAGERIE, "serve", "--home", str(root), "--port", "0", "--gateway-port", "0"])
    assert told == f"menagerie serve: {root / name} is not a regular file: remove it\n"


@as_root
def test_settings_of_another_user_are_not_read(root: Path) -> None:
    planted(root / "config.toml", 'base_url = "http://evil.example"\n')
    with pytest.raises(SettingsError, match=rf"config\.toml belongs to uid {OTHER}"):
        load(home=root)
    os.chown(root / "config.toml", 0, 0)
    assert load(home=root).base_url == "http://evil.example"


def test_what_others_may_write_is_refused_and_what_they_may_read_is_closed(root: Path) -> None:
    path = root / "menagerie.db"
    path.touch()
    path.chmod(0o666)
    with pytest.raises(SettingsError, match=f"{path} can be written by other users.*chmod go-w"):
        home.prepare(root)
    assert root.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    (root / "keys").mkdir(mode=0o777)
    (root / "keys").chmod(0o777)
    home.prepare(root)
    assert path.stat().st_mode & 0o777 == 0o600
    assert (root / "keys").stat().st_mode & 0o777 == 0o700


def test_a_file_of_ones_own_group_is_closed(root: Path) -> None:
    """As where every user has a group, and what they create may be written by it."""
    (root / "config.toml").write_text("")
    (root / "config.toml").chmod(0o664)
    home.prepare(root)
    assert (root / "config.toml").stat().st_mode & 0o777 == 0o600
    if os.geteuid() == 0:
        os.chown(root / "config.toml", 0, OTHER)
        (root / "config.toml").chmod(0o664)
        with pytest.raises(SettingsError, match="can be written by other users"):
            home.prepare(root)


def test_the_home_itself_may_be_a_link(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    home.prepare(link)
    assert root.stat().st_mode & 0o777 == 0o700


@as_root
def test_folders_of_engines_are_left_out(root: Path) -> None:
    for name in ("cell/run/i1", "cell/instances/i1/data"):
        (root / name).mkdir(parents=True)
        os.chown(root / name, OTHER, OTHER)
    home.prepare(root)
