"""Purge: deleted instances whose retention is over are erased."""

from typing import Final

from sqlalchemy import select

from control.work import Operation, Schedule, workflow
from control.workflows.instances import erasure
from control.workflows.instances.starting import start
from storage.database import now
from storage.instances.instances import Instance

BATCH: Final = 100


@workflow("instances.purge", deadline_s=300)
def purge(op: Operation) -> None:
    with op.database.write() as db:
        over = (
            select(Instance)
            .where(Instance.status == "deleted", Instance.purge_after <= now(db))
            .order_by(Instance.purge_after)
            .limit(BATCH)
            .with_for_update(skip_locked=True)
        )
        for instance in db.scalars(over).all():
            instance.erase()
            start(db, erasure.erase, instance)


SCHEDULE: Final = Schedule("purge", purge, every_s=60)
