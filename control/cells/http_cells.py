"""The clients of all cells: one for each, with its connections."""

import threading

from sqlalchemy.orm import Session

from control.cells.client import CellClient, HttpCell
from control.cells.signing import Signer
from control.cells.sockets import followed
from storage.catalogue import cells
from storage.catalogue.cells import Cell
from storage.instances.instances import Instance


class HttpCells:
    """A client for each cell, with its connections; safe to share between threads."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self._lock = threading.Lock()
        self._clients: dict[str, tuple[str, str | None, HttpCell]] = {}

    def for_instance(self, db: Session, instance: Instance) -> CellClient:
        return self.for_cell(cells.fetch(db, instance.cell_id))

    def for_cell(self, cell: Cell) -> CellClient:
        """Raises CellUnavailable. The last one of a cell is kept, whatever CAs it tells in turn."""
        url, ca_pem = followed(cell.url), cell.ca_root_pem
        with self._lock:
            kept = self._clients.get(cell.id)
            if kept is None or kept[:2] != (url, ca_pem):
                # The former may be in use: it closes with whoever uses it last.
                kept = (url, ca_pem, HttpCell(cell.id, url, self._signer, ca_pem=ca_pem))
                self._clients[cell.id] = kept
            return kept[2]

    def close(self) -> None:
        with self._lock:
            for _, _, client in self._clients.values():
                client.close()
            self._clients.clear()
