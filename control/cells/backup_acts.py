"""Acts of cells on backups: made, found, removed and restored, and whether WAL is archived."""

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote

from control.cells.answer_checks import Answer


class BackupActs(Protocol):
    """As `CellClient` says of all acts."""

    def back_up(
        self, instance_id: str, backup_id: str, kind: str, *, key: str, lease: int
    ) -> Answer: ...
    def take_over_backups(
        self, instance_id: str, known: list[str], *, key: str, lease: int
    ) -> Answer: ...
    def drop_backups(
        self, instance_id: str, backup_ids: list[str], *, key: str, lease: int
    ) -> Answer: ...
    def restore(
        self, instance_id: str, backup_id: str, at: str | None = None, *, key: str, lease: int
    ) -> Answer: ...
    def set_archiving(self, instance_id: str, *, wanted: bool, key: str, lease: int) -> Answer: ...
    def set_copying(self, instance_id: str, *, wanted: bool, key: str, lease: int) -> Answer: ...
    def backup_copies(self, instance_id: str) -> Answer: ...


class HttpBackupActs(BackupActs, Protocol):
    """Of a client that can act."""

    def _act(
        self, action: str, instance_id: str, body: Mapping[str, Any] | None, key: str, lease: int
    ) -> Answer: ...
    def _ask(self, operation: str, path: str) -> Answer: ...

    def back_up(
        self, instance_id: str, backup_id: str, kind: str, *, key: str, lease: int
    ) -> Answer:
        return self._act("back-up", instance_id, {"backup_id": backup_id, "kind": kind}, key, lease)

    def take_over_backups(
        self, instance_id: str, known: list[str], *, key: str, lease: int
    ) -> Answer:
        return self._act("take-over-backups", instance_id, {"known_sha256": known}, key, lease)

    def drop_backups(
        self, instance_id: str, backup_ids: list[str], *, key: str, lease: int
    ) -> Answer:
        return self._act("drop-backups", instance_id, {"backup_ids": backup_ids}, key, lease)

    def restore(
        self, instance_id: str, backup_id: str, at: str | None = None, *, key: str, lease: int
    ) -> Answer:
        # A cell of an earlier version knows no moments.
        moment = {} if at is None else {"at": at}
        return self._act("restore", instance_id, {"backup_id": backup_id, **moment}, key, lease)

    def set_archiving(self, instance_id: str, *, wanted: bool, key: str, lease: int) -> Answer:
        return self._act("set-archiving", instance_id, {"wanted": wanted}, key, lease)

    def set_copying(self, instance_id: str, *, wanted: bool, key: str, lease: int) -> Answer:
        return self._act("set-copying", instance_id, {"wanted": wanted}, key, lease)

    def backup_copies(self, instance_id: str) -> Answer:
        path = f"/v1/instances/{quote(instance_id, safe='')}/backup-copies"
        return self._ask("backups.list_copies", path)
