"""What tests of jobs that sign in ask for again and again."""

from typing import Any

import httpx

from contract_tests.api.harness import House, Tenant
from contract_tests.api.roles.test_service_accounts import create, path_of
from contract_tests.api.rows import trusted

EXCHANGE = "/v1/workload-identities/actions/exchange"
GITHUB = "https://token.actions.githubusercontent.com"


def trusting(house: House, tenant: Tenant) -> dict[str, str]:
    """An account that trusts the main branch of a repository."""
    made = create(house, tenant, role="developer")
    return {**made, "trust": trusted(house, tenant, made["id"])["id"]}


def now(house: House, more: float = 0) -> float:
    return house.now().timestamp() + more


def token(house: House, **claims: Any) -> str:
    return house.issuer.token(house.now().timestamp(), **claims)


def exchange(house: House, account: dict[str, str], text: str, **body: Any) -> httpx.Response:
    sent = {"service_account_id": account["id"], "token": text, **body}
    return house.post(EXCHANGE, json=sent)


def trusts(tenant: Tenant, account: dict[str, str]) -> str:
    return f"{path_of(tenant, account)}/workload-identities"


def body(house: House, **changed: str) -> dict[str, str]:
    trust = {"name": "jobs", "issuer": house.issuer.url, "audience": "here", "subject": "a/b"}
    return {**trust, **changed}
