"""An independent checker of SCIM (PyPI scim2-tester) finds nothing wrong with the served API."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn

from contract_tests.api.harness import House
from contract_tests.api.sso.provider import Provider

DEADLINE_S = 30


@pytest.fixture
def served(houses: Any) -> Iterator[tuple[House, str]]:
    house = houses.on("sqlite")
    config = uvicorn.Config(house.app, port=0, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    yield house, f"http://127.0.0.1:{port}/scim/v2"
    server.should_exit = True
    thread.join(DEADLINE_S)


def test_the_checker_passes_whole(
    served: tuple[House, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from contract_tests.api.sso import scim_checker  # noqa: PLC0415 -- takes seconds to import

    house, url = served
    provider = Provider(house)
    scim_checker.write_addresses_of(provider, monkeypatch)
    headers = {"Authorization": f"Bearer {provider.token}"}
    with httpx.Client(base_url=url, headers=headers, timeout=DEADLINE_S) as client:
        results = scim_checker.check(client)
    wrong = [one for one in results if scim_checker.is_bad(one)]
    told = [f"{one.title} ({one.resource_type}): {one.reason}" for one in wrong]
    assert not wrong, "\n".join(told)
    checked = {one.title for one in results}
    assert {"object_creation", "object_replacement", "object_deletion"} <= checked
    assert {"check_add_attribute", "check_remove_attribute", "check_replace_attribute"} <= checked
    assert len(results) > 60
