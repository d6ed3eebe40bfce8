"""What wants the machine to itself: what all parts take at rest, and how soon a gateway is back."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from contract_tests.end_to_end.installation import Installation, lasted_s, order, reveal
from contract_tests.end_to_end.test_faults import answers
from tools.bench.memory import AT_MOST_MB, memory_mb, tree

# Pages that others' processes have too would count for less, and the other holds a promised time.
# By day a killed worker of a gateway is replaced at once (gateway/test_restart.py).
pytestmark = [pytest.mark.exclusive, pytest.mark.nightly]


@dataclass(frozen=True)
class Rested:
    """An installation, and what its parts took before anybody used them."""

    installation: Installation
    taken: list[tuple[str, int]]


@pytest.fixture(scope="module")
def rested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rested]:
    folder = tmp_path_factory.mktemp("rested")
    installation = Installation(folder / "home", {"MENAGERIE_GATEWAY_WORKERS": "2"})
    try:
        installation.start()
        assert installation.process is not None
        parts = tree(psutil.Process(installation.process.pid))
        yield Rested(
            installation, [(name, round(memory_mb(process)["pss"])) for name, process in parts]
        )
    finally:
        installation.destroy()


def test_all_parts_at_rest_take_little(rested: Rested) -> None:
    assert {name for name, _ in rested.taken} == {
        *("serve", "api", "cell", "gateway", "gateway worker")
    }
    assert sum(megabytes for _, megabytes in rested.taken) < AT_MOST_MB, rested.taken


def test_a_killed_gateway_is_back_within_five_seconds(rested: Rested) -> None:
    made = order(rested.installation)
    used = {"id": made["id"]} | reveal(rested.installation, made["id"])
    # A machine that stalls spoils one of the times; a gateway that is slow spoils them all.
    times = sorted(without_gateway_s(rested.installation, used) for _ in range(3))
    assert times[1] < 5, times


def without_gateway_s(installation: Installation, used: dict[str, Any]) -> float:
    gateway = installation.part("gateway")
    for process in [gateway, *gateway.children(recursive=True)]:
        # The children of one that is gone end by themselves, maybe before we come to them.
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return lasted_s(lambda: answers(installation, used), "the gateway came back")
