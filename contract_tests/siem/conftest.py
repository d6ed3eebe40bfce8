"""A stage with the streams that SIEM deliveries send, a target on loopback, and a deliverer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract_tests import published
from contract_tests.siem.receiver import Receiver
from contract_tests.siem.rig import Rig
from contract_tests.workflows.stage import Stage


@pytest.fixture(autouse=True, scope="module")
def _events_are_described() -> Iterator[None]:
    with published.checked():
        yield


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def rig(database_url: str, tmp_path: Path, receiver: Receiver) -> Iterator[Rig]:
    stage = Stage(database_url, tmp_path / "cell.db")
    made = Rig(stage, receiver)
    yield made
    made.close()
