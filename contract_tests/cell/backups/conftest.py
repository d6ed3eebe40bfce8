"""A cell whose instances are archived, for all tests of a file."""

from collections.abc import Iterator

import pytest

from contract_tests.cell.backups.recovering import cell
from contract_tests.cell.rig import Rig


@pytest.fixture(scope="module")
def archiving_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with cell(tmp_path_factory.mktemp("archiving")) as made:
        yield made
