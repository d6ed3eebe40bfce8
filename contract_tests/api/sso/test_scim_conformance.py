"""An independent checker of SCIM (PyPI scim2-tester) finds nothing wrong with the served API."""

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import scim2_tester.filling
import uvicorn
from scim2_client.client import BaseSyncSCIMClient
from scim2_tester import Status, check_server

from contract_tests.api.harness import House
from contract_tests.api.sso.provider import Provider

DEADLINE_S = 30


class HttpClient(BaseSyncSCIMClient):
    """The checker's client, over httpx."""

    def __init__(self, client: httpx.Client) -> None:
        super().__init__()
        self.client = client

    def _stays_under_base_url(self, endpoint: str) -> bool:
        url = self.client.build_request("GET", endpoint).url
        return url.host == self.client.base_url.host

    def _parse_json(self, response: Any) -> Any:
        return response.json()

    def request(self, method: str, url: str, **options: Any) -> Any:
        return self.client.request(method, url, **options)


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
    house, url = served
    provider = Provider(house)
    _write_addresses_of(provider, monkeypatch)
    headers = {"Authorization": f"Bearer {provider.token}"}
    with httpx.Client(base_url=url, headers=headers, timeout=DEADLINE_S) as client:
        results = check_server(HttpClient(client))
    wrong = [f"{one.title} ({one.resource_type}): {one.reason}" for one in results if _is_bad(one)]
    assert not wrong, "\n".join(wrong)
    checked = {one.title for one in results}
    assert {"object_creation", "object_replacement", "object_deletion"} <= checked
    assert {"check_add_attribute", "check_remove_attribute", "check_replace_attribute"} <= checked
    assert len(results) > 60


def _is_bad(result: Any) -> bool:
    return result.status not in (Status.SUCCESS, Status.COMPLIANT)


def _write_addresses_of(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker makes values up; here people have addresses in the organization's domain."""
    made_up = scim2_tester.filling.generate_random_value

    def generate(context: Any, path: Any, *args: Any, **options: Any) -> Any:
        binding = path.resolve()
        is_address = binding is not None and (
            binding.field_name == "user_name"
            or (binding.field_name == "emails" and binding.sub_field_name == "value")
            or (binding.field_name == "value" and "mail" in binding.model.__name__.lower())
        )
        if is_address:
            return provider.address(os.urandom(6).hex())
        return made_up(context, path, *args, **options)

    for name, module in list(sys.modules.items()):
        if name.startswith("scim2_tester") and hasattr(module, "generate_random_value"):
            monkeypatch.setattr(module, "generate_random_value", generate)
