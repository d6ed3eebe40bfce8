"""`make test ARGS='--room …'` runs what it says: every room and every folder of tests is known."""

import pytest

from contract_tests import order
from contract_tests.habits.test_imports import ROOMS as CODE
from contract_tests.habits.test_sizes import ROOT
from tools import run_tests


def test_every_room_has_tests_and_every_folder_is_one_of_a_room() -> None:
    assert run_tests.ROOMS.keys() >= CODE
    folders = {each.name for each in (ROOT / "contract_tests").iterdir() if each.is_dir()}
    run = {name for names in run_tests.ROOMS.values() for name in names}
    assert run <= folders
    assert folders - run <= {"attacks", "__pycache__"}


def test_what_is_no_room_is_named_with_those_there_are() -> None:
    assert run_tests.folders_of(["cell", "api"])[0] == "contract_tests/api"
    with pytest.raises(SystemExit, match="nowhere is not a room; choose one of api, attacks"):
        run_tests.folders_of(["nowhere"])


def test_what_is_said_to_take_long_is_there() -> None:
    assert order.unknown((ROOT / "contract_tests").rglob("test_*.py")) == set()
