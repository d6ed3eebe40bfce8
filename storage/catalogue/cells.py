"""Cells: the places that run engines, as they last described themselves."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Json, Record, is_among
from storage.errors import RecordNotFound, StorageUnavailable
from storage.lookups import by_key
from storage.prepared import Prepared

# Cells are asked several times a minute.
SILENT_AFTER: Final = timedelta(seconds=60)


class Cell(Record):
    """`engines` is what the cell's drivers found: [{engine, versions, source}].

    `refused` is what they could not run, and what would help: [{engine, reason, remedy}].
    `clock_skew_s` is by how much its host's clock was ahead of the database's, or behind (< 0).
    `has_second_store`: whether backups can be copied there; NULL until it has said.
    `capacity` is what its machine has in all: {vcpu, memory_bytes, storage_bytes}.
    `placement` is that of all instances it takes: it runs no others.
    """

    __tablename__ = "cells"

    id: Mapped[str] = mapped_column(primary_key=True)
    region: Mapped[str] = mapped_column(index=True)
    placement: Mapped[str] = mapped_column(default="shared", server_default="shared")
    url: Mapped[str]
    public_url: Mapped[str]
    instance_domain: Mapped[str]
    ports: Mapped[dict[str, int]] = mapped_column(Json, default=dict)
    engines: Mapped[list[dict[str, Any]]] = mapped_column(Json, default=list)
    refused: Mapped[list[dict[str, str]]] = mapped_column(Json, default=list)
    capacity: Mapped[dict[str, Any] | None] = mapped_column(Json)
    ca_root_pem: Mapped[str | None]
    ca_chain_pem: Mapped[str | None]
    last_seen_at: Mapped[datetime | None]
    # Since when it is waited for, where it has not been seen since it started.
    expected_at: Mapped[datetime | None]
    clock_skew_s: Mapped[float | None]
    has_second_store: Mapped[bool | None]
    # The last hour of which it was asked what connections have sent out.
    egress_metered_hour: Mapped[datetime | None]

    def is_silent(self, now: datetime) -> bool:
        """Whether it has not described itself lately, or not at all since it started."""
        return self.last_seen_at is None or self.last_seen_at + SILENT_AFTER < now


_EVERY: Final = Prepared(select(Cell).order_by(Cell.id))
_LOCKED: Final = Prepared(
    select(Cell.id, Cell.placement)
    .where(is_among(Cell.id, "cell_ids"))
    .order_by(Cell.id)
    # Rows that name a cell may still be written by others: only the key is shared with them.
    .with_for_update(key_share=True)
)


def every(db: Session) -> list[Cell]:
    """All cells, in the order of their ids; they belong to no tenant."""
    return [cell for (cell,) in _EVERY.rows(db)]


def fetch(db: Session, cell_id: str) -> Cell:
    cell = by_key(db, Cell, cell_id)
    if cell is None:
        raise RecordNotFound("cell not found")
    return cell


def lock(db: Session, cells: Collection[Cell]) -> None:
    """Hold these cells until the transaction ends, so that who counts what is on them waits.

    Raises StorageUnavailable where one is for another placement since it was read. On SQLite a
    transaction that writes excludes all others anyway.
    """
    if db.get_bind().dialect.name == "postgresql":
        held = dict(_LOCKED.rows(db, cell_ids=[cell.id for cell in cells]))
        if any(held[cell.id] != cell.placement for cell in cells):
            raise StorageUnavailable("a cell has started with other settings; try again")


def register(
    db: Session,
    cell_id: str,
    *,
    region: str,
    url: str,
    public_url: str,
    instance_domain: str,
    placement: str = "shared",
) -> Cell:
    """Make the cell known, or note its new addresses; what it runs comes from the cell itself."""
    cell = by_key(db, Cell, cell_id)
    if cell is None:
        cell = Cell(id=cell_id)
        db.add(cell)
    cell.region = region
    cell.placement = placement
    cell.url = url
    cell.public_url = public_url
    cell.instance_domain = instance_domain
    db.flush()
    return cell
