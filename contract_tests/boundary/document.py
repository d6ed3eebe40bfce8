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
    parameters = [
        {"name": name[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for name in path.split("/")
        if name.startswith("{")
    ]
    parameters += [
        {"name": name, "in": "query", "schema": schema} for name, schema in query.items()
    ]
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
    if body is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return made


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
    def get(name: str, path: str, permission: str = "none", **policy: Any) -> None:
        paths.setdefault(path, {})["get"] = operation(name, path, permission, **policy)

    def post(name: str, path: str, permission: str = "none", **policy: Any) -> None:
        policy.setdefault("audit", name)
        paths.setdefault(path, {})["post"] = operation(name, path, permission, **policy)

    paths: Json = {}
    get("desk.ping", "/v1/ping", security=[], rate="unauthenticated")
    get("desk.me", "/v1/me", "self")
    get("desk.perhaps", "/v1/perhaps", security=[{}, *BOTH])
    get("desk.org", ORG, "self")
    limit = {"type": "integer", "default": 2}
    get(
        "desk.list_projects",
        f"{ORG}/projects",
        "projects:read",
        query={"limit": limit, "cursor": TEXT},
    )
    get("desk.list_others", f"{ORG}/others", "projects:read", query={"cursor": TEXT})
    dry_run = {"dry_run": {"type": "boolean", "default": False}}
    post("desk.create_project", f"{ORG}/projects", "projects:write", body=PROJECT, query=dry_run)
    get("desk.project", f"{ORG}/projects/{{project_id}}", "projects:read")
    post(
        "desk.create_key",
        f"{ORG}/api-keys",
        "api-keys:write",
        body=closed(required=["name"], name=TEXT),
    )
    post("desk.close", f"{ORG}/close", "org:close", security=SESSION, authorize=OWNER_MFA)
    post(
        "desk.emit",
        f"{ORG}/emit",
        "instances:write",
        events=["instance.paused.v1"],
        body=closed(required=["kind", "audited"], kind=TEXT, audited={"type": "boolean"}),
    )
    post(
        "desk.sign_in",
        "/v1/sessions",
        security=[],
        rate="authentication",
        body=closed(required=["email", "password"], email=TEXT, password=TEXT),
    )
    post("desk.reveal", f"{ORG}/reveal", "credentials:reveal", rate="reveal")
    get("desk.log_url", f"{ORG}/logs", "logs:read", audit="instance.logs")
    get("desk.wait", f"{ORG}/wait", "instances:read")
    get("desk.fail", f"{ORG}/fail/{{how}}", "instances:read")
    for permission in PERMISSIONS:
        path = path_of(permission)
        get(f"can.do_{path.rpartition('/')[2]}", path, permission)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Desk", "version": "1"},
        "paths": paths,
        "components": {
            "securitySchemes": {
                "api_key": {"type": "http", "scheme": "bearer"},
                "dev_user": {"type": "http", "scheme": "bearer"},
            }
        },
    }
