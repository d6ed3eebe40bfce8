"""One installation for the tests of a module, and fresh ones for those that break theirs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract_tests.end_to_end.installation import Installation


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    made = Installation(tmp_path_factory.mktemp("serve") / "home")
    try:
        made.start()
        yield made
    finally:
        made.destroy()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Callable[..., Installation]]:
    made: list[Installation] = []

    def make(**environment: str) -> Installation:
        made.append(Installation(tmp_path / f"home{len(made)}", environment))
        return made[-1]

    yield make
    for one in made:
        one.destroy()
