"""The SCIM protocol over an organization's directory: what it is asked for, in bounds.

The protocol itself is that of scim2-server. Members of groups are changed here, by their ids: the
changes of a group of thousands are read as sets, and not as thousands of resources.
"""

from functools import cache
from typing import Any

from scim2_models import (
    PatchOp,
    Resource,
    ResourceType,
    ResponseParameters,
    SCIMException,
)
from scim2_server.conditions import Conditions
from scim2_server.handler import ScimHandler
from scim2_server.requests import ScimRequest
from scim2_server.responses import ScimResponse
from scim2_server.service import ScimService

from control.sso.scim import bodies, member_changes
from control.sso.scim.call import ScimCall
from control.sso.scim.directory import Directory
from control.sso.scim.member_changes import Split
from control.sso.scim.resources import User, group_of, make_provider


@cache
def service_of() -> ScimService:
    """One for all requests: it keeps nothing of any."""
    return _Service(make_provider())


class _Service(ScimService):
    def patch_response(
        self,
        base_url: str,
        resource: Resource[Any],
        response_parameters: ResponseParameters[Any],
    ) -> ScimResponse:
        """A user is returned, as Okta wants it; a group may be long, and is not (204)."""
        if isinstance(resource, User):
            return self.replacement_response(base_url, resource, response_parameters)
        return super().patch_response(base_url, resource, response_parameters)


def answer(call: ScimCall, *, base_url: str, path: str, query: dict[str, str]) -> ScimResponse:
    """What the protocol says to the request; an error of it is a response as well."""
    exchange = call.exchange
    service = service_of()
    try:
        bodies.check_text(query.get("filter"))
        bodies.check_text(query.get("sortBy"))
        request = ScimRequest(
            method=exchange.operation.method,
            base_url=base_url,
            path=path,
            query=query,
            headers=dict(exchange.request.headers),
            body=bodies.prepared(exchange.arguments.get("body"), exchange.body_bytes),
        )
        return Server(service, Directory(call)).handle(request)
    except SCIMException as error:
        return service.error_response(error)


class Server(ScimHandler):
    """For one request."""

    storage: Directory

    def patch_resource(
        self,
        resource_type: ResourceType,
        resource_id: str,
        patch_op: "PatchOp[Any]",
        conditions: Conditions,
    ) -> Resource[Any]:
        if resource_type.name == "Group":
            found = member_changes.split(patch_op.operations or [])
            if found is not None:
                return self._patch_group(resource_id, patch_op, found, conditions)
        return super().patch_resource(resource_type, resource_id, patch_op, conditions)

    def _patch_group(
        self, group_id: str, patch_op: "PatchOp[Any]", found: Split, conditions: Conditions
    ) -> Resource[Any]:
        record = self.storage.group(group_id)
        group = group_of(record)
        self.service.check_preconditions(group, "PATCH", conditions)
        type(patch_op).model_construct(operations=found.rest).patch(group)
        members = before = frozenset(self.storage.members(record)) if found.changes else None
        for change in found.changes:
            members = change.to(members or frozenset())
        self.storage.update_group(record, group, members if members != before else None)
        return group_of(record)
