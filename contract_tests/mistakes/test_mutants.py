"""`make mutants` tells which mutants survive, and fails when too many do or its list is stale."""

import tempfile
import time
from contextlib import chdir
from functools import partial
from pathlib import Path

import pytest

from tools.mutants import listed
from tools.mutants.__main__ import main, report, sample
from tools.mutants.forks import Forks
from tools.mutants.listed import Entry
from tools.mutants.reach import Reach
from tools.mutants.results import NO_VERDICT, TIMEOUT, change_of
from tools.mutants.rooms import ROOMS, Room
from tools.mutants.work_folder import WorkFolder

ROOT = Path(__file__).resolve().parents[2]
ROOM = Room("shop", ("shop_tests",))
PRICES = '''\
"""Prices."""


# A comment above.
def reduced(cents: int) -> int:
    if cents > 100:
        return cents - 10
    return cents


class Till:
    def add(self, cents: int) -> int:
        return cents + 1
'''
WEAK = """\
from shop.prices import reduced


def test_a_high_price_is_reduced() -> None:
    assert reduced(200) == 190
"""
STRONG = """\
import pytest
from shop.prices import Till, reduced


CASES = [(101, 91), (100, 100), (99, 99)]


@pytest.mark.parametrize(("cents", "less"), CASES, ids=["a::b", "", " "])
def test_a_high_price_is_reduced(cents: int, less: int) -> None:
    assert reduced(cents) == less


def test_a_till() -> None:
    assert Till().add(2) == 3
"""
COUNTED = '''\
"""Counts."""


def down(count: int) -> int:
    while count != 0:
        count -= 1
    return count
'''
COUNTS = """\
from shop.prices import down


def test_down() -> None:
    assert down(3) == 0
"""
NEVER = Entry("shop/*.py", "if cents > 100:", "if cents > 999:", "a reason")
BOUND = Entry("shop/prices.py", "if cents > 100:", "if cents … 10…:", "a reason")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> WorkFolder:
    """Two mutants of `reduced` survive its test, and nothing tests `Till`."""
    folder = made(tmp_path_factory.mktemp("shop"), PRICES, WEAK)
    folder.run([], 1)
    return folder


def made(root: Path, code: str, tests: str) -> WorkFolder:
    files = {"shop/__init__": "", "shop/prices": code, "shop_tests/test_it": tests}
    for name, text in files.items():
        path = root / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    folder = WorkFolder(root, "shop", ROOM)
    folder.make(anew=False)
    return folder


def told(shop: WorkFolder, capsys: pytest.CaptureFixture[str], *entries: Entry) -> tuple[int, str]:
    return report(shop, [], entries), capsys.readouterr().out


@pytest.mark.nightly
def test_survivors_are_listed_with_place_and_difference(
    shop: WorkFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = told(shop, capsys)
    assert status == 1
    assert (
        "shop/prices.py:6: survived: shop.prices.x_reduced__mutmut_1\n"
        "    -    if cents > 100:\n"
        "    +    if cents >= 100:\n"
    ) in text
    assert "shop/prices.py:13: no tests: shop.prices.xǁTillǁadd__mutmut_1\n" in text
    assert text.endswith(
        "6 mutants tried: 2 killed, 0 timeouts, 2 survived, 2 without test; 0 of them cannot matter"
        "\nsurvivors: 4 of 6, 66.7%; at most 5%\n"
    )


@pytest.mark.nightly
def test_what_cannot_matter_counts_neither_way(
    shop: WorkFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = Entry(BOUND.files, BOUND.old, BOUND.new, "a reason", "add")
    assert "x_reduced__mutmut_1" in told(shop, capsys, elsewhere)[1]
    text = told(shop, capsys, BOUND)[1]
    assert "x_reduced__mutmut_1" not in text
    assert "survivors: 2 of 4, 50.0%; at most 5%\n" in text


@pytest.mark.nightly
def test_of_a_sample_only_what_was_chosen_counts(
    shop: WorkFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    names = shop.names()
    assert set(sample(names, 99, 1)) == set(names) == {each.name for each in shop.mutants()}
    assert sample(names, 2, 7) == sample(names, 2, 7)
    assert shop.names(["prices.py"]) == names
    assert shop.names(["other.py"]) == []
    (killed, *_) = [each.name for each in shop.mutants() if each.outcome == "killed"]
    assert report(shop, [killed], [NEVER]) == 0
    assert capsys.readouterr().out.startswith("1 mutants tried: 1 killed, ")


@pytest.mark.nightly
def test_a_run_goes_on_and_fails_no_more_but_for_a_stale_entry(
    shop: WorkFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop.root / "shop_tests/test_it.py").write_text(STRONG)
    shop.make(anew=False)
    kept = [each.outcome for each in shop.mutants()]
    assert sorted(kept) == ["killed"] * 2 + ["not checked"] * 4
    assert told(shop, capsys)[1].endswith("4 without a verdict: not checked 4\n")
    shop.run([], 1)
    status, text = told(shop, capsys)
    assert status == 0
    assert text == (
        "6 mutants tried: 6 killed, 0 timeouts, 0 survived, 0 without test; 0 of them cannot matter"
        "\nsurvivors: 0 of 6, 0.0%; at most 5%\n"
    )
    status, text = told(shop, capsys, BOUND)
    assert status == 1
    assert "stale in tools/mutants/equivalent.toml, as no survivor is like it: shop/" in text
    elsewhere = Entry("other/*.py", "a", "b", "a reason")
    assert told(shop, capsys, elsewhere)[0] == 0


@pytest.mark.nightly
def test_tests_that_fail_without_any_mutant_judge_nothing(shop: WorkFolder) -> None:
    (shop.root / "shop_tests/test_it.py").write_text(STRONG.replace("== 3", "== 4"))
    shop.make(anew=True)
    assert {each.outcome for each in shop.mutants()} == {"not checked"}
    with pytest.raises(SystemExit, match="pytest ended with 1") as ended:
        shop.run([], 1)
    assert "FAILED shop_tests/test_it.py::test_a_till" in str(ended.value)


@pytest.mark.nightly
def test_a_mutant_that_takes_forever_is_killed(tmp_path: Path) -> None:
    folder = made(tmp_path, COUNTED, COUNTS)
    folder.run([], 2)
    with chdir(folder.path):
        forever = [each for each in folder.mutants() if "count += 1" in change_of(each).new]
    assert [each.outcome for each in forever] == ["timeout"]
    assert "killed" in {each.outcome for each in folder.mutants()}


@pytest.mark.nightly
def test_what_a_run_that_was_ended_has_found_is_kept(tmp_path: Path) -> None:
    folder = made(tmp_path, PRICES, STRONG)
    (first, *_) = folder.names()
    (folder.path / "verdicts").write_text(f"1 {first}\n")
    assert [each.outcome for each in folder.mutants()] == ["killed"] + ["not checked"] * 5
    folder.make(anew=False)
    folder.run([], 1)
    verdicts = (folder.path / "verdicts").read_text().splitlines()
    assert sorted(verdicts) == sorted(f"1 {name}" for name in folder.names()[1:])


def later(seconds: float) -> int:
    time.sleep(seconds)
    return 0


def interrupted() -> int:
    raise KeyboardInterrupt


def test_a_fork_ends_with_its_status_or_by_its_time_and_leaves_nothing(tmp_path: Path) -> None:
    told: dict[str, int] = {}
    forks = Forks(2, told.__setitem__)
    for name, work, limit_s in (
        ("seven", lambda: (tmp_path / "where").write_text(tempfile.mkdtemp()) and 7, 60),
        ("late", partial(later, 600), 0.2),
        ("broken", lambda: 1 // 0, 60),
        ("interrupted", interrupted, 60),
    ):
        forks.start(name, work, limit_s)
    forks.wait()
    assert told == {"seven": 7, "late": TIMEOUT, "broken": NO_VERDICT, "interrupted": NO_VERDICT}
    assert not Path((tmp_path / "where").read_text()).parent.exists()
    forks.start("forgotten", partial(later, 600), 60)
    forks.kill()
    assert "forgotten" not in told


def test_the_fastest_tests_judge_first() -> None:
    reach = Reach()
    reach.add("slow", 2, ["a.x_f", "a.x_g"], "")
    reach.add("fast", 1, ["a.x_f"], "")
    reach.add("elsewhere", 0, [], "FAILED elsewhere")
    assert reach.judges("a.x_f__mutmut_12") == ["fast", "slow"]
    assert reach.judges("a.x_h__mutmut_1") == []
    assert reach.failures == ["FAILED elsewhere"]


def test_without_a_room_the_rooms_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kitchen"]) == 2
    assert capsys.readouterr().out
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(f"make mutants ROOM={name}\n" in text for name in ROOMS)


def test_what_rooms_name_exists() -> None:
    for room in ROOMS.values():
        assert room.files(ROOT)
        for name in (*room.tests, *room.no_judges):
            assert (ROOT / name.partition("::")[0]).exists(), name


def test_what_is_listed_says_why_and_is_of_a_room() -> None:
    files = [path for room in ROOMS.values() for path in room.files(ROOT)]
    for entry in listed.read():
        assert entry.reason, entry
        assert any(path.match(entry.files) for path in files), entry
