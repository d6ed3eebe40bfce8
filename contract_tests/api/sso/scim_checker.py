"""The independent checker of SCIM (PyPI scim2-tester), to be imported where it is run.

Its models read their own source when they are imported, which takes seconds of a CPU.
"""

import os
import sys
from typing import Any

import httpx
import pytest
import scim2_tester.filling
from scim2_client.client import BaseSyncSCIMClient
from scim2_tester import Status, check_server

from contract_tests.api.sso.provider import Provider


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


def check(client: httpx.Client) -> list[Any]:
    """Its results; `is_bad` says of each whether something is wrong."""
    return list(check_server(HttpClient(client)))


def is_bad(result: Any) -> bool:
    return result.status not in (Status.SUCCESS, Status.COMPLIANT)


def write_addresses_of(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
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
