"""An identity provider's side of SCIM: a client with a token of an organization."""

import os
from copy import copy
from typing import Any

import httpx

from contract_tests.api.harness import House, Tenant
from control.boundary import identity
from storage import identifiers
from storage.access import memberships
from storage.sso import scim_tokens
from storage.sso.domains import SsoDomain

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
BULK = "urn:ietf:params:scim:api:messages:2.0:BulkRequest"
SEARCH = "urn:ietf:params:scim:api:messages:2.0:SearchRequest"
TYPE = {"Content-Type": "application/scim+json"}


def verify_domain(house: House, org_id: str, domain: str) -> None:
    """As if its TXT record had been found."""
    with house.database.write() as db:
        db.add(
            SsoDomain(
                id=identifiers.new("ssod_"),
                org_id=org_id,
                domain=domain,
                txt_value=os.urandom(8).hex(),
                status="verified",
                verified_at=house.database.now(db),
            )
        )


class Provider:
    """Of an organization with a verified domain of its own."""

    def __init__(self, house: House, tenant: Tenant | None = None, *, role: str = "member") -> None:
        self.house, self.tenant = house, tenant or house.tenant(plan="enterprise")
        self.org_id = self.tenant.org_id
        self.domain = f"{os.urandom(6).hex()}.example.com"
        verify_domain(house, self.org_id, self.domain)
        self.token, self.token_id = self.new_token(role=role)

    def new_token(self, *, role: str = "member") -> tuple[str, str]:
        token = identity.new_scim_token()
        with self.house.database.write() as db:
            made = scim_tokens.create(
                db,
                self.org_id,
                name="provider",
                prefix=token.prefix,
                token_hash=token.sha256,
                default_role=role,
                created_by=self.tenant.owner.id,
                expires_at=None,
            )
            return token.secret, made.id

    def on(self, replica: House) -> "Provider":
        """The same provider, which asks another replica."""
        same = copy(self)
        same.house = replica
        return same

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        headers = {**TYPE, **options.pop("headers", {})} if body is not None else {}
        headers = headers or options.pop("headers", {})
        if body is not None:
            options["json"] = body
        token = options.pop("token", self.token)
        return self.house.request(method, f"/scim/v2{path}", token, headers=headers, **options)

    def address(self, name: str) -> str:
        return f"{name}@{self.domain}"

    def user(self, login: str, /, **values: Any) -> dict[str, Any]:
        """A new one, as the server has it."""
        email = self.address(login)
        body = {
            "schemas": [USER],
            "userName": email,
            "emails": [{"value": email, "type": "work", "primary": True}],
            **values,
        }
        made = self.ask("POST", "/Users", body)
        assert made.status_code == 201, made.text
        found: dict[str, Any] = made.json()
        return found

    def group(self, name: str, *members: str, **values: Any) -> dict[str, Any]:
        listed = [{"value": each} for each in members]
        body = {"schemas": [GROUP], "displayName": name, "members": listed, **values}
        made = self.ask("POST", "/Groups", body)
        assert made.status_code == 201, made.text
        found: dict[str, Any] = made.json()
        return found

    def patch(self, path: str, *operations: dict[str, Any], **options: Any) -> httpx.Response:
        return self.ask("PATCH", path, {"schemas": [PATCH], "Operations": operations}, **options)

    def members(self, group_id: str) -> set[str]:
        found = self.ask("GET", f"/Groups/{group_id}").json()
        return {each["value"] for each in found.get("members", ())}

    def role(self, user_id: str) -> str | None:
        """In the organization; None for no member."""
        with self.house.database.read() as db:
            member = memberships.find(db, self.org_id, user_id)
            return None if member is None else member.role
