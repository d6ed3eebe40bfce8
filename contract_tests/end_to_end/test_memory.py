"""What all parts take together while nobody uses them."""

from collections.abc import Callable

import psutil
import pytest

from contract_tests.end_to_end.installation import Installation
from tools.bench.memory import memory_mb, tree

# `make bench` holds them to 300; a machine that differs is no reason to fail.
AT_MOST_MB = 330.0


@pytest.mark.exclusive  # pages that others' processes have too would count for less
def test_all_parts_at_rest_take_little(fresh: Callable[..., Installation]) -> None:
    installation = fresh(MENAGERIE_GATEWAY_WORKERS="2")
    installation.start()
    assert installation.process is not None
    parts = tree(psutil.Process(installation.process.pid))
    taken = [(name, round(memory_mb(process)["pss"])) for name, process in parts]
    assert {name for name, _ in taken} == {"serve", "api", "cell", "gateway", "gateway worker"}
    assert sum(megabytes for _, megabytes in taken) < AT_MOST_MB, taken
