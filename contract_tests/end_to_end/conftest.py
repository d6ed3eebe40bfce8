"""One installation for all tests, one of a module's own, and fresh ones for a test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract_tests.end_to_end.installation import Installation, erase_all, installed

# The watchdog's, for tests that start whole installations: on a machine that is busy otherwise
# one start alone has taken a minute.
WATCH_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_here = Path(__file__).parent in item.path.parents
        if is_here and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(WATCH_S))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with installed(tmp_path_factory.mktemp("shared")) as made:
        yield made


@pytest.fixture(scope="module")
def installation(shared: Installation) -> Iterator[Installation]:
    """Empty as a module begins, and as nobody has signed in. A start takes seconds of two CPUs.

    So whoever kills parts, or changes what outlives an instance, asks for `own` or `fresh`.
    """
    yield shared
    erase_all(shared)


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
