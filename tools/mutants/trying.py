"""A plugin for pytest that collects the tests once, and tries each mutant in a fork of itself."""

import contextlib
import math
import resource
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from mutmut.mutation import trampoline

from tools.mutants import reach
from tools.mutants.forks import Forks
from tools.mutants.reach import Reach
from tools.mutants.results import KILLED, NO_TESTS, SURVIVED

NAMES: Final = "names"
"""Of the mutants to try, one a line."""
REACH: Final = "reach.json"
VERDICTS: Final = "verdicts"
"""Lines of an exit status and a name, in the order in which they came."""
# A test may take so many times as long as without a mutant, and so many seconds more, for fixtures
# that another test made there. Others may use the machine too.
_TIMES: Final = 10
_CONSTANT_S: Final = 5
_REACH_S: Final = 3600
_TOLD_EACH: Final = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants-folder", type=Path)
    parser.addoption("--mutants-jobs", type=int)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """In place of the tests themselves. What could not be collected is told by pytest."""
    if session.testsfailed:
        return None
    folder: Path = session.config.getoption("--mutants-folder")
    found = _reach(session, folder / REACH)
    session.testsfailed = len(found.failures)
    if not found.failures:
        names = (folder / NAMES).read_text().split()
        with (folder / VERDICTS).open("a", buffering=1) as verdicts:
            for count, (name, code) in enumerate(_tried(session, found, names), 1):
                verdicts.write(f"{code} {name}\n")
                if count % _TOLD_EACH == 0 or count == len(names):
                    _tell(session, f"{count} of {len(names)}")
    return True


def _reach(session: pytest.Session, path: Path) -> Reach:
    """By a fork as well: what a test has cached would hide mutants."""
    path.unlink(missing_ok=True)
    _tell(session, f"{len(session.items)} tests without mutants")
    codes: list[int] = []
    forks = Forks(1, lambda _, code: codes.append(code))
    with _killed_at_the_end(forks):
        forks.start("", partial(_write_reach, session, path), _REACH_S)
        forks.wait()
    if codes != [SURVIVED]:
        pytest.exit("what the tests reach could not be found", returncode=max(1, *codes))
    return reach.read(path)


def _write_reach(session: pytest.Session, path: Path) -> int:
    hits: set[str] = set()
    vars(trampoline)["record_trampoline_hit"] = lambda name, caller: hits.add(name)  # noqa: ARG005
    trampoline.set_mutant_under_test("stats")
    failures = _Failures()
    session.config.pluginmanager.register(failures)
    found = Reach()
    for item, following in _with_following(session.items):
        begun = time.monotonic()
        _run(item, following)
        found.add(item.nodeid, time.monotonic() - begun, [*hits], failures.take())
        hits.clear()
    found.write(path)
    return SURVIVED


def _tried(
    session: pytest.Session, found: Reach, names: Sequence[str]
) -> Iterator[tuple[str, int]]:
    items = {item.nodeid: item for item in session.items}
    ended: list[tuple[str, int]] = []
    forks = Forks(session.config.getoption("--mutants-jobs"), lambda *each: ended.append(each))
    with _killed_at_the_end(forks):
        for name in names:
            judges = found.judges(name)
            if judges:
                allowed = {items[each]: _allowed_s(found.seconds[each]) for each in judges}
                forks.start(name, partial(_try, name, allowed), sum(allowed.values()))
            else:
                ended.append((name, NO_TESTS))
            yield from ended
            ended.clear()
        forks.wait()
        yield from ended


def _try(name: str, allowed: dict[pytest.Item, float]) -> int:
    """In a fork: the verdict of the tests, of which each is allowed so many seconds."""
    trampoline.set_mutant_under_test(name)
    for item, following in _with_following([*allowed]):
        ends_at = math.ceil(time.process_time() + allowed[item])
        resource.setrlimit(resource.RLIMIT_CPU, (ends_at, resource.RLIM_INFINITY))
        _run(item, following)
        if item.session.testsfailed:
            # What others of its module or session would have used.
            with contextlib.suppress(Exception):
                item.ihook.pytest_runtest_teardown(item=item, nextitem=None)
            return KILLED[0]
    return SURVIVED


def _allowed_s(seconds: float) -> float:
    return _TIMES * seconds + _CONSTANT_S


def _run(item: pytest.Item, following: pytest.Item | None) -> None:
    item.ihook.pytest_runtest_protocol(item=item, nextitem=following)


def _with_following(
    items: Sequence[pytest.Item],
) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, (*items[1:], None), strict=True)


def _tell(session: pytest.Session, text: str) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    reporter.write_line(text)


@contextlib.contextmanager
def _killed_at_the_end(forks: Forks) -> Iterator[None]:
    try:
        yield
    finally:
        forks.kill()


class _Failures:
    """A plugin that keeps what is told of tests that fail."""

    def __init__(self) -> None:
        self._told: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._told.append(f"{report.longreprtext}\nFAILED {report.nodeid}")

    def take(self) -> str:
        told = "\n".join(self._told)
        self._told.clear()
        return told
