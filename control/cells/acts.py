"""Acts: where a cell is asked for each, and which operation of its document that is."""

from typing import Final

_OF_BACKUPS: Final = {
    "back-up": "backups.make",
    "drop-backups": "backups.drop",
    "restore": "backups.restore",
    "set-archiving": "backups.set_archiving",
    "set-copying": "backups.set_copying",
    "take-over-backups": "backups.take_over",
}


def target(action: str, instance_path: str) -> tuple[str, str]:
    """The method and the path."""
    if action == "put":
        return "PUT", instance_path
    return "POST", f"{instance_path}/actions/{action}"


def operation(action: str) -> str:
    """Its operationId."""
    return _OF_BACKUPS.get(action, f"instances.{action.replace('-', '_')}")
