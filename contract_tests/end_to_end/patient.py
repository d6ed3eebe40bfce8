"""A client of a cell that asks again, as a worker does, while the cell is busy with an act."""

import time
from collections.abc import Callable
from typing import Any, cast

from control.cells.client import CellClient, HttpCell
from control.cells.migrations import CellMigrations
from control.work.errors import Again

DEADLINE_S = 90.0


class _Patient:
    def __init__(self, client: HttpCell | CellMigrations) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        act = getattr(self._client, name)

        def repeated(*given: Any, **named: Any) -> Any:
            deadline = time.monotonic() + DEADLINE_S
            while True:
                try:
                    return act(*given, **named)
                except Again as again:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(again.after_s)

        return repeated


def patient(client: HttpCell | CellMigrations) -> CellClient:
    return cast("CellClient", _Patient(client))
