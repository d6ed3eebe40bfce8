"""What tests of roles ask for again and again."""

from typing import Any

import httpx

from contract_tests.api.harness import House, Tenant


def role(house: House, tenant: Tenant, *held: str, name: str = "a role") -> str:
    """The path of a new custom role."""
    made = house.post(
        f"{tenant.path}/roles", tenant.key, json={"name": name, "permissions": list(held)}
    )
    assert made.status_code == 201, made.text
    return f"{tenant.path}/roles/{made.json()['id']}"


def assign(
    house: House, path: str, token: str, user_id: str, team_id: str | None = None
) -> httpx.Response:
    body = {"user_id": user_id} | ({} if team_id is None else {"team_id": team_id})
    return house.post(f"{path}/assignments", token, json=body)


def entries(house: House, tenant: Tenant, action: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = house.get(
        f"{tenant.path}/audit?action={action}", tenant.key
    ).json()["items"]
    return found


def mine(house: House, tenant: Tenant, token: str) -> dict[str, Any]:
    """What somebody may do, as they are told."""
    told: dict[str, Any] = house.get(f"{tenant.path}/me/permissions", token).json()
    return told
