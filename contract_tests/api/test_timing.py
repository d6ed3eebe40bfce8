"""Promise 2's other half: whose a resource is cannot be told from how long the 404 takes."""

import statistics
import time

import pytest
from ulid import ULID

from contract_tests.api.harness import House

ROUNDS = 200


@pytest.mark.nightly
@pytest.mark.exclusive  # it compares times
def test_another_orgs_instance_takes_as_long_as_none(house: House) -> None:
    mine, theirs = house.tenant(plan="enterprise"), house.tenant(plan="enterprise")
    paths = {
        "theirs": f"{mine.path}/instances/{house.instance(theirs)}",
        "none": f"{mine.path}/instances/inst_{ULID()}",
    }
    took: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(ROUNDS):
        for name, path in paths.items():
            started = time.perf_counter()
            assert house.get(path, mine.key).status_code == 404
            took[name].append(time.perf_counter() - started)
    quarters = {name: statistics.quantiles(times, n=4) for name, times in took.items()}
    # The middle halves overlap: each one's median lies within the other's quartiles, widened by
    # half, as the machine has other things to do.
    for one, other in (("theirs", "none"), ("none", "theirs")):
        low, _, high = quarters[other]
        assert low * 0.67 <= quarters[one][1] <= high * 1.5, quarters
