"""One operation, sent as it was typed: its pages, its ETag, and the wait for its end."""

import shlex
import sys
from collections.abc import Mapping
from typing import Any, Final

import typer

from clients import following
from clients.cli.output import plain
from clients.cli.progress import waiting
from clients.client import Answer, Client
from clients.document import Operation
from clients.errors import ApprovalAwaited, Conflict
from clients.waiting import settle

PRECONDITION_FAILED: Final = 412
# Where an answer does not say what is wanted of the resource.
WANTED_AFTER: Final = {
    "create": "running",
    "resume": "running",
    "pause": "paused",
    "delete": "deleted",
    "erase": "erased",
}


def send(
    client: Client,
    operation: Operation,
    arguments: dict[str, Any],
    body: Any,
    values: Mapping[str, Any],
) -> Any:
    """Answer what is to be shown: the body, every page's rows, or the resource once it is ready."""
    if operation.is_page and (values["every_page"] or values["limit"]):
        rows = list(client.paginate(operation.id, limit=values["limit"], **arguments))
        return {"items": rows, "next_cursor": None}
    if operation.needs_etag and "if_match" not in arguments:
        arguments = {**arguments, "if_match": _etag(client, operation, arguments)}
    answer = _sent(client, operation, arguments, body, values.get("idempotency_key"))
    shown = _with_etag(answer)
    reader = operation.decided_by(answer.status)
    if reader is not None:
        _tell_of_decision(reader, shown, waits=bool(values.get("wait")))
        return shown
    if not values.get("wait") or not isinstance(shown, Mapping):
        return shown
    return _awaited(client, operation, arguments, shown, values["wait_timeout"])


def _tell_of_decision(reader: Operation, shown: Mapping[str, Any], *, waits: bool) -> None:
    """Say that nothing is there yet; raise ApprovalAwaited where that was to be waited for."""
    reasons = "; ".join(str(each.get("message")) for each in shown.get("reasons", ()))
    line = shlex.join(["menagerie", reader.noun, reader.verb, str(shown.get("id"))])
    said = f"nothing is created yet: this waits for approval until {shown.get('expires_at')}"
    said += f" ({reasons})" if reasons else ""
    said += f"; `{line}` shows what becomes of it"
    # A server's text begins no line of ours.
    said = " ".join(said.split())
    if waits:
        raise ApprovalAwaited(said, shown)
    typer.echo(plain(said), err=True)


def follow(client: Client, operation: Operation, arguments: Mapping[str, Any]) -> None:
    """Show what a stream sends, a line for each event, until Ctrl-C or a refusal."""
    for data in following.follow(client, operation, arguments):
        typer.echo(plain(data) if sys.stdout.isatty() else data)


def _sent(
    client: Client, operation: Operation, arguments: Mapping[str, Any], body: Any, key: str | None
) -> Answer:
    try:
        return client.send(operation, arguments, body=body, idempotency_key=key)
    except Conflict as error:
        if error.status == PRECONDITION_FAILED and "if_match" in arguments:
            error.document["detail"] = (
                f"{error.detail}; nothing was changed. `menagerie {operation.noun} get` shows what "
                "is there now"
            )
        raise


def _etag(client: Client, operation: Operation, arguments: Mapping[str, Any]) -> str | None:
    """Answer the ETag of what is to be replaced, as it is now."""
    reader = operation.document.at("GET", operation.path)
    if reader is None:
        return None
    path = {one.name: arguments[one.name] for one in operation.at("path") if one.name in arguments}
    return client.send(reader, path).headers.get("ETag")


def _with_etag(answer: Answer) -> Any:
    etag = answer.headers.get("ETag")
    if etag is None or not isinstance(answer.body, Mapping):
        return answer.body
    return {**answer.body, "etag": etag}


def _awaited(
    client: Client,
    operation: Operation,
    arguments: Mapping[str, Any],
    shown: Mapping[str, Any],
    timeout_s: float,
) -> Mapping[str, Any]:
    wanted = _wanted_status(operation, shown)
    if wanted is not None and operation.watcher is not None:
        org = {name: arguments[name] for name in ("org_id",) if name in arguments}
        with waiting(wanted) as on_change:
            return client.wait(
                shown["id"], wanted, operation_id=operation.watcher.id,
                timeout_s=timeout_s, on_change=on_change, **org,
            )  # fmt: skip
    ending = operation.ending
    if ending is None:
        return shown
    # What was made by the request, such as a backup, is not among its arguments.
    path = {
        one.name: arguments[one.name] if one.name in arguments else shown["id"]
        for one in ending.reader.at("path")
    }

    def read() -> Mapping[str, Any]:
        if ending.reader.is_page:
            items = client.paginate(ending.reader.id, **path)
            return next((one for one in items if one["id"] == shown["id"]), shown)
        found: Mapping[str, Any] = _with_etag(client.send(ending.reader, path))
        return found

    goal = ", ".join(f"{name} {value}" for name, value in ending.until.items())
    with waiting(goal) as on_change:
        return settle(read, ending, timeout_s=timeout_s, on_change=on_change)


def _wanted_status(operation: Operation, answer: Mapping[str, Any]) -> str | None:
    if operation.watcher is None or not {"id", "status"} <= set(answer):
        return None
    wanted = answer.get("desired_status") or WANTED_AFTER.get(operation.verb)
    return None if wanted is None else str(wanted)
