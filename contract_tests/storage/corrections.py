"""Correcting what was metered, as an operator does it: by an entry more, which has a reason."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from storage.billing.meters import MeterEntry, MeterReading


def correct(db: Session, reading: MeterReading, reason: str) -> None:
    """Make the hour's sum that of the reading."""
    rows = select(func.count(), func.coalesce(func.sum(MeterEntry.quantity), 0)).where(
        MeterEntry.subject_id == reading.subject_id,
        MeterEntry.meter == reading.meter,
        MeterEntry.hour == reading.hour,
    )
    count, total = db.execute(rows).one()
    if reading.quantity != total:
        values = {**reading._asdict(), "quantity": reading.quantity - int(total)}
        db.add(MeterEntry(**values, seq=count, reason=reason))
        db.flush()
