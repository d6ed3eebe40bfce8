"""What one organization has under way at once leaves the API to the others."""

from typing import Any

import pytest

from contract_tests.api.harness import House


@pytest.mark.nightly
def test_long_polls_of_an_organization_are_bounded_over_all_its_keys(house: House) -> None:
    crowd, other = house.tenant(), house.tenant()
    second, _ = house.key(crowd.org_id, crowd.owner, "owner")
    waits = "?wait_for=running&timeout_s=2"
    instances = {each: house.instance(each, running=False) for each in (crowd, other)}
    path = f"{crowd.path}/instances/{instances[crowd]}{waits}"
    asked: list[Any] = [("GET", path, key, {}) for key in (crowd.key, second) for _ in range(55)]
    asked.append(("GET", f"{other.path}/instances/{instances[other]}{waits}", other.key, {}))
    *answers, served = house.together(*asked)
    assert served.status_code == 200
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) == 10
    for answer in refused:
        assert answer.json()["code"] == "too_many_at_once"
        assert answer.headers["retry-after"] == "1"
