"""What a real API does in small: make, list, close, sign in, reveal, wait, fail."""

from typing import Any

from sqlalchemy import text

from control.boundary import Call, identity
from specserver import PollAgain, Problem, Reply
from storage import identifiers
from storage.access import api_keys, projects
from storage.access.projects import Project
from storage.errors import RecordNotFound, StateConflict, StorageUnavailable


def ping(_call: Call) -> dict[str, Any]:
    return {"pong": True}


def me(call: Call) -> dict[str, Any]:
    assert call.caller is not None
    return {"user_id": call.caller.user.id, "kind": call.caller.kind, "mfa": call.caller.mfa}


def perhaps(call: Call) -> dict[str, Any]:
    return {"known": call.caller is not None}


def org(call: Call) -> dict[str, Any]:
    assert call.org is not None
    return {"id": call.org.id}


def create_project(call: Call, body: dict[str, Any], dry_run: bool) -> Reply:
    assert call.org is not None
    if dry_run:
        return Reply.ok({"would": "create"})
    made = projects.create(call.db, call.org.id, name=body["name"], slug=body["slug"])
    call.audit(made.id, detail={"name": made.name})
    answer = {"id": made.id, "name": made.name}
    return _end(call, body.get("then")) or Reply.created(answer, f"/v1/orgs/{call.org.id}/projects")


def _end(call: Call, how: str | None) -> Reply | None:
    """The ways a handler can fail after it has changed something."""
    if how == "crash":
        raise RuntimeError("after the record was made")
    if how == "forget":
        assert call.org is not None
        call.org.name = None  # type: ignore[assignment]
        call.db.flush()
    if how == "refuse":
        raise Problem(402, "not now", code="seat_limit")
    answered = {"answer_400": 400, "answer_409": 409}.get(how or "")
    return None if answered is None else Reply(answered, {"made": "nothing"})


def list_projects(call: Call, limit: int, cursor: str | None = None) -> dict[str, Any]:
    assert call.org is not None
    position = call.cursor_in(cursor)
    page = projects.page(
        call.db,
        call.org.id,
        scope=call.scope,
        limit=limit,
        after=position["after"] if position else None,
    )
    following = call.cursor_out({"after": page.next_after}) if page.next_after else None
    return {"items": [one.id for one in page.items], "next_cursor": following}


def list_others(call: Call, cursor: str) -> dict[str, Any]:
    return {"position": call.cursor_in(cursor)}


def project(_call: Call, project: Project) -> dict[str, Any]:
    return {"id": project.id}


def forget(_call: Call, project: Project) -> Reply:
    """To audit."""
    assert project.id
    return Reply.no_content()


def create_key(call: Call, body: dict[str, Any]) -> Reply:
    token = identity.new_api_key()
    key = _key_of(call, token, name=body["name"])
    call.db.add(key)
    call.audit(key.id)
    return Reply.created({"id": key.id, "key": token.secret})


def _key_of(call: Call, token: identity.Token, name: str) -> api_keys.ApiKey:
    assert call.org is not None
    assert call.caller is not None
    return api_keys.ApiKey(
        id=identifiers.new("key_"),
        org_id=call.org.id,
        name=name,
        role="member",
        created_by=call.caller.user.id,
        prefix=token.prefix,
        token_hash=token.sha256,
    )


def close(call: Call) -> Reply:
    assert call.org is not None
    call.org.close(call.now)
    api_keys.revoke_all(call.db, call.org.id, call.now)
    call.audit(call.org.id)
    return Reply.accepted({"status": call.org.status})


def emit(call: Call, body: dict[str, Any]) -> Reply:
    call.emit(body["kind"], {"said": "so"})
    if body["audited"]:
        call.audit("target")
    return Reply.no_content()


def confide(call: Call, body: dict[str, Any]) -> Reply:
    call.emit("instance.paused.v1", body)
    call.audit("target", detail=body)
    return Reply.no_content()


def sign_in(call: Call, body: dict[str, Any]) -> Reply:
    if body["password"] != "right":
        raise Problem(401, "wrong e-mail address or password", code="sign_in_failed")
    call.audit(body["email"])
    return Reply.created({"token": identity.new_session_token().secret})


def reveal(call: Call) -> Reply:
    call.audit("inst_1")
    return Reply.ok({"url": "https://cell.example/v1/reveal/x"})


def log_url(call: Call) -> Reply:
    call.audit("inst_1")
    return Reply.ok({"url": "https://cell.example/v1/logs/x"})


def wait(call: Call) -> dict[str, Any]:
    if call.exchange.attempt < 2:
        raise PollAgain(0)
    return {"attempt": call.exchange.attempt}


def fail(call: Call, how: str) -> None:
    if how == "not_found":
        raise RecordNotFound("project not found")
    if how == "conflict":
        raise StateConflict("cannot pause an instance that is requested")
    if how == "unavailable":
        raise StorageUnavailable("the database has no space left")
    if how == "write_in_read":
        call.db.add(projects.Project(id="proj_1", org_id="org_1", name="n", slug="s"))
        call.db.flush()
    call.db.execute(text("SELECT 1 FROM nowhere"))


def ask_cell(call: Call, body: dict[str, Any]) -> Reply:
    """A cell would be asked here, before anything is written."""
    call.audit("inst_1", org=call.org)
    return _end(call, body.get("then")) or Reply.ok({"key": call.operation_key})


def look(call: Call) -> Reply:
    """Reads for long, and is audited."""
    call.audit("inst_1")
    return Reply.ok({"seen": True})


look_alone = look
"""Outside of any organization."""


def take(call: Call, body: dict[str, Any]) -> Reply:
    """Takes any password, unless it is told to answer otherwise."""
    return _end(call, body.get("then")) or Reply.ok({})
