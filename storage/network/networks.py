"""Networks: who may connect to an instance, as its organization wants it and as its cell has it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, case, inspect, select
from sqlalchemy.orm import Mapped, Session, attributes, mapped_column

from storage.columns import DatabaseClock, Json, Owned, Record
from storage.instances.instances import Instance
from storage.lookups import by_key


class Network(Owned, Record):
    """`version` grows with each replacement; `applied_version` is the one the cell was told.

    `status_reason` is what kept the cell from being told the newest. `cell_version` grows with each
    change of domains too: a cell takes nothing older than what it has.
    """

    __tablename__ = "networks"

    instance_id: Mapped[str] = mapped_column(ForeignKey("instances.id"), primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    # Null admits every address, an empty list none.
    allow_cidrs: Mapped[list[str] | None] = mapped_column(Json)
    client_ca_pem: Mapped[str | None]
    version: Mapped[int] = mapped_column(default=0)
    applied_version: Mapped[int] = mapped_column(default=0)
    cell_version: Mapped[int] = mapped_column(BigInteger, default=0)
    status_reason: Mapped[str | None]
    updated_by: Mapped[str | None]
    updated_at: Mapped[datetime] = mapped_column(default=DatabaseClock(), onupdate=DatabaseClock())

    def replace(self, values: Mapping[str, Any], by: str | None) -> None:
        """Sets what is given of `allow_cidrs` and `client_ca_pem`, and leaves the rest."""
        for name, value in values.items():
            setattr(self, name, value)
        self.version += 1
        self._outdate()
        self.status_reason = None
        self.updated_by = by

    def domains_changed(self, above: int = 0) -> None:
        """What the cell was told before is older, and so is the version `above`.

        The settings are the same, and so is the time of their last change.
        """
        self._outdate(above)
        attributes.flag_modified(self, "updated_at")

    def _outdate(self, above: int = 0) -> None:
        """In the statement itself: another organization may do so too, when it takes a domain."""
        if inspect(self).persistent:
            now = Network.cell_version
            self.cell_version = case((now > above, now), else_=above) + 1
        else:
            self.cell_version = max(self.cell_version, above) + 1

    @property
    def is_applied(self) -> bool:
        return self.applied_version == self.version

    def became_applied(self, version: int) -> None:
        self.applied_version = max(self.applied_version, version)
        if self.is_applied:
            self.status_reason = None

    def is_held_up(self, reason: str) -> None:
        if not self.is_applied:
            self.status_reason = reason


def of_instance(db: Session, instance: Instance) -> Network:
    """The instance's network, also where nobody ever replaced it; that one is in no table yet."""
    found = by_key(db, Network, instance.id)
    if found is not None:
        return found
    ids = {"instance_id": instance.id, "org_id": instance.org_id}
    numbers = {"version": 0, "applied_version": 0, "cell_version": 0}
    return Network(**ids, **numbers, updated_at=instance.created_at)


def domains_changed(db: Session, instance: Instance, above: int = 0) -> None:
    """The cell is to be told of them, and takes no version any more that was told before."""
    network = of_instance(db, instance)
    network.domains_changed(above)
    db.add(network)
    db.flush()


def cell_versions(db: Session, cell_id: str) -> dict[str, int]:
    """By instance of the cell; those without were never told of clients or domains."""
    rows = select(Network.instance_id, Network.cell_version)
    rows = rows.join(Instance, Instance.id == Network.instance_id)
    return {row[0]: row[1] for row in db.execute(rows.where(Instance.cell_id == cell_id))}


def untold(db: Session, cell_id: str, before: datetime) -> list[Network]:
    """Those of the cell's instances that it has not been told since then, without a reason."""
    return list(
        db.scalars(
            select(Network)
            .join(Instance, Instance.id == Network.instance_id)
            .where(
                Instance.cell_id == cell_id,
                Network.applied_version < Network.version,
                Network.status_reason.is_(None),
                Network.updated_at < before,
            )
        )
    )


def hand_on(db: Session, source: Instance, branch: Instance) -> None:
    """A copy of the data admits nobody who may not reach the data itself."""
    network = of_instance(db, source)
    if network.version == 0:
        return
    # The cell is told with the first specification, so the branch never runs without it.
    kept = {"allow_cidrs": network.allow_cidrs, "client_ca_pem": network.client_ca_pem}
    ids = {"instance_id": branch.id, "org_id": branch.org_id}
    numbers = {"version": 1, "applied_version": 1, "cell_version": 1}
    db.add(Network(**ids, **kept, **numbers, updated_by=network.updated_by))
