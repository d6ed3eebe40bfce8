"""Corrections of metered hours, as an operator writes them: entries with a reason."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.billing.meters import MeterEntry, MeterReading


def correct(db: Session, reading: MeterReading, reason: str) -> None:
    """Make the hour's sum that of the reading, by an entry that says why."""
    rows = select(MeterEntry.quantity).where(
        MeterEntry.subject_id == reading.subject_id,
        MeterEntry.meter == reading.meter,
        MeterEntry.hour == reading.hour,
    )
    known = list(db.scalars(rows))
    if reading.quantity != sum(known):
        changed = {**reading._asdict(), "quantity": reading.quantity - sum(known)}
        db.add(MeterEntry(**changed, seq=len(known), reason=reason))
        db.flush()
