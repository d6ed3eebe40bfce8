"""`make test ARGS='--order …'` runs the same tests backwards or shuffled, and so again."""

import subprocess
import sys
from collections.abc import Callable
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import pytest

from contract_tests import order
from contract_tests.habits.test_sizes import ROOT
from tools import run_tests

FILES = ("api/test_a", "api/test_b", "cell/test_c", "cell/deep/test_d", "storage/test_e")


def ordered(chosen: str | None = None) -> list[str]:
    items: list[Any] = [
        SimpleNamespace(path=order.TESTS / f"{file}.py", name=f"{file} {number}")
        for number in range(9)
        for file in FILES
    ]
    order.in_order(items, chosen)
    return [item.name for item in items]


def test_reverse_is_backwards() -> None:
    assert ordered("reverse") == ordered()[::-1]


def file_of(name: str) -> str:
    return name.split(" ", maxsplit=1)[0]


def room_of(name: str) -> str:
    return name.split("/", maxsplit=1)[0]


@pytest.mark.parametrize("of", [room_of, file_of])
def test_random_keeps_rooms_and_files_in_one_piece(of: Callable[[str], str]) -> None:
    usual, shuffled = ordered(), ordered("random:1")
    assert sorted(shuffled) == sorted(usual)
    assert len([*groupby(shuffled, of)]) == len({of(name) for name in usual})
    # And moves them, and what is in them.
    orders = [ordered(f"random:{seed}") for seed in range(20)]
    assert len({tuple(dict.fromkeys(map(of, names))) for names in orders}) > 1
    assert len({tuple(names) for names in orders}) == len(orders)


def test_a_seed_gives_the_same_order_again() -> None:
    assert ordered("random:7") == ordered("random:7") != ordered("random:8")


def test_an_order_is_checked_and_random_gets_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests.order("random:7") == "random:7"
    assert run_tests.order("random").removeprefix("random:").isdigit()
    for wrong in ("sideways", "random:", "reverse:1"):
        with pytest.raises(SystemExit):
            run_tests.main(["--order", wrong])
        said = f"{wrong} is not an order; use reverse, random or random:SEED"
        assert said in capsys.readouterr().err


def test_what_the_command_is_told_the_tests_are_run_in() -> None:
    file = "contract_tests/policy/test_catalogue.py"
    words = [sys.executable, "-m", "tools.run_tests", "--order", "reverse", "-n0", "-vv", file]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    passed = [
        line.split("::")[1].split(" ")[0] for line in done.stdout.splitlines() if "::" in line
    ]
    written = (ROOT / file).read_text()
    places = [written.index(f"def {name.split('[')[0]}") for name in passed]
    assert "in this order: --order reverse" in done.stdout
    assert len(places) > 3
    assert places == sorted(places, reverse=True)
