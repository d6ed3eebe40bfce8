"""A cell for what the control plane relies on: the real one, and the tests' fake."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from contract_tests.cell import rig
from contract_tests.end_to_end.patient import patient
from contract_tests.workflows.fake_cell import FakeCell
from control.cells.client import CellClient, HttpCell
from control.cells.signing import Signer

KINDS: Final = ("fake", "real")


@contextmanager
def of_kind(kind: str, home: Path) -> Iterator[CellClient]:
    if kind == "fake":
        yield FakeCell(home / "fake.db")
        return
    with rig.running(home / "cell") as real:
        client = HttpCell(
            real.cell_id, f"http+unix://{real.socket}", Signer(real.key, clock=time.time)
        )
        try:
            yield patient(client)
        finally:
            client.close()
