"""What tests that try callers against every operation of the document share.

Requests lead nowhere and their bodies are empty, so nothing happens to whoever may.
"""

from collections import defaultdict
from typing import Any, Final

import httpx

from contract_tests.api.harness import House, Tenant
from contract_tests.api.rows import NOBODY, OPERATIONS, is_problem, send
from control.policy import permissions
from specserver import Operation

IN_ORG: Final = [one for one in OPERATIONS if "{org_id}" in one.path]
PERMITTED: Final = [
    one for one in OPERATIONS if one.extension("authorize")["permission"] in permissions.ALL
]
BY_PERMISSION: Final = defaultdict[str, list[Operation]](list)
for _one in PERMITTED:
    BY_PERMISSION[_one.extension("authorize")["permission"]].append(_one)
IN_TEAMS: Final = [
    one for one in PERMITTED if one.extension("authorize")["permission"] in permissions.TEAM
]


def permission_of(operation: Operation) -> str:
    return str(operation.extension("authorize")["permission"])


def is_for_owners(operation: Operation) -> bool:
    return bool(operation.extension("authorize").get("role") == "owner")


def is_for_people(operation: Operation) -> bool:
    return bool(operation.extension("authorize").get("session") == "user")


def ask(
    house: House, operation: Operation, tenant: Tenant, token: str, **ids: str
) -> httpx.Response:
    """An empty request, to records that are not there unless `ids` says otherwise."""
    body: Any = {} if "requestBody" in operation.document else None
    answer = send(house, operation, {**NOBODY, "org_id": tenant.org_id, **ids}, token, body)
    assert answer.status_code < 500, answer.text
    return answer


def is_let_in(answer: httpx.Response) -> bool:
    """Whether the operation was the caller's to call; what it then found is another matter."""
    if answer.status_code == 403:
        is_problem(answer, 403)
        return False
    assert answer.status_code != 401, answer.text
    return True


def lacks(answer: httpx.Response, permission: str) -> None:
    """Asserts that this permission is what the caller was refused for."""
    is_problem(answer, 403, "permission_missing")
    assert answer.json()["permission"] == permission
