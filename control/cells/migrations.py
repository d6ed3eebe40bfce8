"""What the control plane asks of a cell about the migrations into an instance."""

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote

from control.cells.answer_checks import Answer


class Ask(Protocol):
    """Asks by an operation of the cell's document; None where there is no such thing."""

    def __call__(self, operation: str, path: str, about: Mapping[str, str]) -> Answer | None: ...


class Act(Protocol):
    """Has a step done: `at` is a method and a path, `about` what the answer must be of."""

    def __call__(
        self,
        operation: str,
        at: tuple[str, str],
        body: Mapping[str, Any] | None,
        about: Mapping[str, str],
        *,
        key: str,
        lease: int,
    ) -> Answer: ...


class CellMigrations(Protocol):
    """Into one instance. Acts are as those of `CellClient`, and raise as they do."""

    def observe(self, migration_id: str) -> Answer | None: ...
    def begin(
        self, migration_id: str, wanted: Mapping[str, Any], *, key: str, lease: int
    ) -> Answer: ...
    def cut_over(
        self, migration_id: str, keep_way_back_s: int, *, key: str, lease: int
    ) -> Answer: ...
    def cancel(self, migration_id: str, *, key: str, lease: int) -> Answer: ...


class HttpMigrations:
    """Below the path of the instance."""

    def __init__(self, instance_path: str, ask: Ask, act: Act) -> None:
        self._base = f"{instance_path}/migrations"
        self._ask = ask
        self._act = act

    def observe(self, migration_id: str) -> Answer | None:
        about = {"migration_id": migration_id}
        return self._ask("migrations.get", self._path(migration_id), about)

    def begin(
        self, migration_id: str, wanted: Mapping[str, Any], *, key: str, lease: int
    ) -> Answer:
        at, about = ("PUT", self._path(migration_id)), {"migration_id": migration_id}
        return self._act("migrations.begin", at, wanted, about, key=key, lease=lease)

    def cut_over(self, migration_id: str, keep_way_back_s: int, *, key: str, lease: int) -> Answer:
        at = "POST", f"{self._path(migration_id)}/actions/cutover"
        body, about = {"keep_way_back_s": keep_way_back_s}, {"migration_id": migration_id}
        return self._act("migrations.cutover", at, body, about, key=key, lease=lease)

    def cancel(self, migration_id: str, *, key: str, lease: int) -> Answer:
        at, about = ("DELETE", self._path(migration_id)), {"migration_id": migration_id}
        return self._act("migrations.cancel", at, None, about, key=key, lease=lease)

    def _path(self, migration_id: str) -> str:
        return f"{self._base}/{quote(migration_id, safe='')}"
