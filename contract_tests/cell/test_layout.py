"""Where the sockets of a cell lie when its home's path is too long for them."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cell.layout import PASSABLE, Layout


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / ("long" * 20) / "cell"
    yield home
    Layout.make(home).remove_sockets()


def test_nobody_can_be_there_first(home: Path, tmp_path: Path) -> None:
    """The name was a hash of the home's path, which every user of the machine can compute."""
    name = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:12]
    places = [
        Path(base) / f"cell-{os.geteuid()}-{name}" for base in (tempfile.gettempdir(), "/tmp")
    ]
    taken = {place for place in places if not place.exists()}
    for place in taken:
        place.symlink_to(tmp_path)
    try:
        made = Layout.make(home)
    finally:
        for place in taken:
            place.unlink()
    assert made.sockets.stat().st_mode & 0o777 == PASSABLE
    assert not made.sockets.is_symlink()
    assert made.sockets not in places


def test_they_are_found_again(home: Path) -> None:
    assert Layout.make(home).sockets == Layout.make(home).sockets
    assert Layout.make(home).public_socket.readlink() == Layout.make(home).socket


def test_a_folder_that_somebody_put_in_their_place_is_not_used(home: Path, tmp_path: Path) -> None:
    former = Layout.make(home).sockets
    shutil.rmtree(former)
    assert not former.exists()
    former.symlink_to(tmp_path)
    try:
        made = Layout.make(home)
    finally:
        former.unlink()
    assert made.sockets != former
    assert made.public_socket.readlink() == made.socket
