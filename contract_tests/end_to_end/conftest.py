"""One installation for all tests, one of a module's own, and fresh ones for a test's own."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract_tests.end_to_end.installation import Installation, erase_all, installed
from contract_tests.order import room_of
from contract_tests.together import complaint

# The watchdog's, for tests that start whole installations: on a machine that is busy otherwise
# one start alone has taken a minute.
WATCH_S = 300
HERE = Path(__file__).parent.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if room_of(item.path) == HERE and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(WATCH_S))


class Shared:
    """One installation for all modules that leave it whole, while tests of this folder follow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts = 0
        self._stack = contextlib.ExitStack()
        self._running: Installation | None = None

    def running(self) -> Installation:
        if self._running is None:
            self._starts += 1
            folder = self._folder / f"{self._starts}"
            folder.mkdir()
            self._running = self._stack.enter_context(installed(folder))
        return self._running

    def end(self) -> None:
        self._running = None
        self._stack.close()


_SHARED = pytest.StashKey[Shared]()


@pytest.fixture(scope="session")
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    made = Shared(tmp_path_factory.mktemp("shared"))
    request.config.stash[_SHARED] = made
    yield made
    made.end()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """An installation that nobody asks any more takes CPUs from the tests of other rooms."""
    is_last = nextitem is None or Path(__file__).parent not in nextitem.path.parents
    if is_last and (shared := item.config.stash.get(_SHARED, None)):
        shared.end()


@pytest.fixture(scope="module")
def installation(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """Empty as a module begins, and as nobody has signed in. A start takes seconds of two CPUs.

    So whoever kills parts, or changes what outlives an instance, asks for `own` or `fresh`.
    """
    if why := complaint(request):
        pytest.fail(why)
    running = shared.running()
    yield running
    erase_all(running)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The module's own, for tests that break it or sign in."""
    with installed(tmp_path_factory.mktemp("own")) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Callable[..., Installation]]:
    made: list[Installation] = []

    def make(**environment: str) -> Installation:
        made.append(Installation(tmp_path / f"home{len(made)}", environment))
        return made[-1]

    yield make
    for one in made:
        one.destroy()
