"""Points in time as people type them, and the backup that one of them needs no name of."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import typer

from clients.cli.command_context import CommandContext
from clients.document import Field, Operation

# Path parameters that may be left out where a member of the body says as much.
OMITTABLE: Final = {("backups.restore", "backup_id"): "at"}


def is_omittable(operation: Operation, field: Field) -> bool:
    return field.place == "path" and (operation.id, field.name) in OMITTABLE


def as_instant(typed: str, flag: str) -> str:
    """Answer it as a document writes it. A time without an offset is UTC, which is said.

    What is no time stays as it was typed: the server says what it takes.
    """
    try:
        moment = datetime.fromisoformat(typed.strip())
    except ValueError:
        return typed
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
        typer.echo(f"{flag}: taken as {moment:%Y-%m-%d %H:%M:%S} UTC", err=True)
    return moment.isoformat()


def chosen_backup(
    context: CommandContext, operation: Operation, arguments: Mapping[str, Any], body: Any
) -> str:
    """Answer the id of any backup that can be restored: for a moment, the server takes its own."""
    told = body if isinstance(body, Mapping) else {}
    if "at" not in arguments and "at" not in told:
        raise typer.BadParameter("is required, unless --at is given", param_hint="BACKUP")
    listing = context.operation("GET", "/instances/{instance_id}/backups")
    known = {name: arguments[name] for name in ("org_id", "instance_id") if name in arguments}
    page = context.client.send(listing, {**known, "status": "completed", "limit": 1}).body
    if not page["items"]:
        raise typer.BadParameter("the instance has no completed backup", param_hint=operation.noun)
    return str(page["items"][0]["id"])
