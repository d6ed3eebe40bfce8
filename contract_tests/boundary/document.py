"""The document of the boundary's tests: one operation for each rule and each permission."""

from typing import Any

from control.policy.permissions import ALL

PERMISSIONS = sorted(ALL)
BOTH: list[dict[str, list[str]]] = [{"api_key": []}, {"dev_user": []}]
SESSION: list[dict[str, list[str]]] = [{"dev_user": []}]
ORG = "/v1/orgs/{org_id}"

Json = dict[str, Any]


def path_of(permission: str) -> str:
    return f"{ORG}/can/{permission.replace(':', '_').replace('-', '_')}"


def operation(operation_id: str, path: str, /, permission: str = "none", **policy: Any) -> Json:
    """An operation with the policy given, and default rate limit and audit."""
    body = policy.pop("body", None)
    query = policy.pop("query", {})
    authorize = {"permission": permission, **policy.pop("authorize", {})}
    if permission == "self" and "{org_id}" not in path:
        authorize.setdefault("sso", "held")
    parameters = [
        {"name": name[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        | _record(name[1:-1])
        for name in path.split("/")
        if name.startswith("{")
    ]
    parameters += [
        {"name": name, "in": "query", "schema": schema} for name, schema in query.items()
    ]
    done_by, password = policy.pop("done_by", None), policy.pop("password", None)
    made: Json = {
        "operationId": operation_id,
        "security": policy.pop("security", BOTH),
        "x-authorize": authorize,
        "x-audit": policy.pop("audit", "none"),
        "x-rate-limit": policy.pop("rate", "default"),
        "x-events": policy.pop("events", []),
        "parameters": parameters,
        "responses": {"default": {"description": "whatever"}},
    }
    if made["x-audit"] == "none":
        made["x-audit-reason"] = "a test"
    if done_by is not None:
        made["x-done-by"] = done_by
    if password is not None:
        made["x-password"] = password
    if body is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return made


def _record(parameter: str) -> Json:
    """What the path parameter says of the record that it names."""
    record, _, end = parameter.rpartition("_")
    return (
        {"x-record": record} if end == "id" else {"x-record": "none", "x-record-reason": "a test"}
    )


def closed(*, required: list[str], **properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "unevaluatedProperties": False,
    }


TEXT = {"type": "string"}
PROJECT = closed(required=["name", "slug"], name=TEXT, slug=TEXT, then=TEXT)
OWNER_MFA = {"role": "owner", "session": "user", "assurance": "mfa"}


def document() -> Json:
    paths = Paths()
    _people(paths)
    _projects(paths)
    _instances(paths)
    for permission in PERMISSIONS:
        path = path_of(permission)
        paths.get(f"can.do_{path.rpartition('/')[2]}", path, permission)
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Small API", "version": "1"},
        "paths": paths.made,
        "webhooks": {"instance.paused.v1": {"post": {"responses": {"2XX": {"description": "x"}}}}},
        "components": {"securitySchemes": {"api_key": bearer, "dev_user": bearer}},
    }


class Paths:
    """The paths of the document, an operation at a time."""

    def __init__(self) -> None:
        self.made: Json = {}

    def get(self, name: str, path: str, permission: str = "none", **policy: Any) -> None:
        self.made.setdefault(path, {})["get"] = operation(name, path, permission, **policy)

    def post(self, name: str, path: str, permission: str = "none", **policy: Any) -> None:
        policy.setdefault("audit", name)
        self.made.setdefault(path, {})["post"] = operation(name, path, permission, **policy)


def _people(paths: Paths) -> None:
    paths.get("samples.ping", "/v1/ping", security=[], rate="unauthenticated")
    paths.get("samples.me", "/v1/me", "self")
    paths.get("samples.perhaps", "/v1/perhaps", security=[{}, *BOTH])
    sign_in = closed(required=["email", "password"], email=TEXT, password=TEXT)
    paths.post("samples.sign_in", "/v1/sessions", security=[], rate="authentication", body=sign_in)
    take = closed(required=["email", "password"], email=TEXT, password=TEXT, then=TEXT)
    proven: Json = {"security": [], "rate": "authentication", "password": "password"}
    paths.post("samples.take", "/v1/take", body=take, **proven)
    paths.get("samples.org", ORG, "self")
    paths.post("samples.close", f"{ORG}/close", "org:write", security=SESSION, authorize=OWNER_MFA)
    key = closed(required=["name"], name=TEXT)
    paths.post("samples.create_key", f"{ORG}/api-keys", "api-keys:write", body=key)


def _projects(paths: Paths) -> None:
    page = {"limit": {"type": "integer", "default": 2}, "cursor": TEXT}
    paths.get("samples.list_projects", f"{ORG}/projects", "projects:read", query=page)
    paths.get("samples.list_others", f"{ORG}/others", "projects:read", query={"cursor": TEXT})
    dry_run = {"dry_run": {"type": "boolean", "default": False}}
    paths.post(
        "samples.create_project", f"{ORG}/projects", "projects:write", body=PROJECT, query=dry_run
    )
    paths.get("samples.project", f"{ORG}/projects/{{project_id}}", "projects:read")
    paths.post("samples.forget", f"{ORG}/projects/{{project_id}}/forget", "projects:write")


def _instances(paths: Paths) -> None:
    event = closed(required=["kind", "audited"], kind=TEXT, audited={"type": "boolean"})
    kinds = ["instance.paused.v1"]
    paths.post("samples.emit", f"{ORG}/emit", "instances:write", events=kinds, body=event)
    inner = closed(required=[], password={**TEXT, "writeOnly": True}, name=TEXT)
    note = closed(required=["accounts"], accounts={"type": "array", "items": inner})
    paths.post("samples.confide", f"{ORG}/confide", "instances:write", events=kinds, body=note)
    paths.post(
        "samples.reveal",
        f"{ORG}/reveal",
        "credentials:reveal",
        rate="reveal",
        authorize={"assurance": "second_factor"},
    )
    asked = closed(required=[], then=TEXT)
    paths.post("samples.ask_cell", f"{ORG}/ask-cell", "instances:write", done_by="cell", body=asked)
    paths.get("samples.look", f"{ORG}/look", "logs:read", audit="samples.look", done_by="reading")
    look: Json = {"security": SESSION, "audit": "samples.look", "done_by": "reading"}
    paths.get("samples.look_alone", "/v1/look", "self", **look)
    paths.get("samples.log_url", f"{ORG}/logs", "logs:read", audit="instance.logs")
    paths.get("samples.wait", f"{ORG}/wait", "instances:read")
    paths.get("samples.fail", f"{ORG}/fail/{{how}}", "instances:read")
