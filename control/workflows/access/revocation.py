"""Consoles, logs and one-time URLs: told to end once the key or session they came by has.

URLs are looked at each second, while there are any: there is no need to ask their cell for that.
"""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from itertools import islice
from typing import Any, Final

import structlog
from sqlalchemy.orm import Session

from control.access import role_holders
from control.cells.answer_checks import Answer
from control.cells.client import CellClient, CellRefused
from control.policy.org_policy import is_too_old
from control.policy.rights import NOTHING, Rights, combined
from control.work import Operation, Schedule, workflow
from control.workflows.catalogue.cells import cell_of, left_to_the_next_turn
from control.workflows.instances.fault_isolation import isolated
from storage.access.api_keys import ApiKey
from storage.access.organizations import Organization
from storage.access.sessions import UserSession
from storage.database import Database, now
from storage.instances import one_time_urls
from storage.instances.instances import Instance

PERMISSIONS: Final = {
    "console": "console:open",
    "data": "data:export",
    "download": "data:export",
    "dump": "data:export",
    "logs": "logs:read",
    "migration_source": "migrations:write",
    "reveal": "credentials:reveal",
    "rotate": "credentials:rotate",
}
"""What each kind of access needs, while it lasts as at its beginning."""
URLS_MAX: Final = 1_000
"""Told to a cell at once; the rest at the next turn."""
URLS_EVERY_S: Final = 1
_log = structlog.get_logger("access")


def end_lapsed(
    database: Database, cell: CellClient, known: Collection[Instance], seen: dict[str, Answer]
) -> None:
    """Asked anew at each turn: rights end in many ways, and some of them by time alone.

    `known` are the instances of the cell, `seen` what it says of them.
    """
    for instance in known:
        if instance.id in seen and (told := seen[instance.id].get("access")):
            with isolated(instance.id):
                _end_open(database, cell, instance, told)


def _end_open(
    database: Database, cell: CellClient, instance: Instance, told: list[dict[str, str]]
) -> None:
    with database.read() as db:
        at = now(db)
        holders = {
            each["holder"]
            for each in told
            if not _is_held(db, instance, each["holder"], each["kind"], at)
        }
    if holders:
        cell.end_access(instance.id, sorted(holders), {})
        _log.info("access ended", instance_id=instance.id, holders=sorted(holders))


@workflow("access.end_urls", deadline_s=60)
def end_urls(op: Operation) -> None:
    """Of one cell, those that nobody has used yet, as far as is known here; told once."""
    cell = cell_of(op)
    client = op.services.cells.for_cell(cell)
    with left_to_the_next_turn(cell):
        for instance_id, urls in lapsed_urls(op.database, cell.id).items():
            some = dict(islice(urls.items(), URLS_MAX))
            try:
                client.end_access(instance_id, [], some)
            except CellRefused as refused:
                # Erased meanwhile: there is nothing that its URLs could give.
                _log.info(
                    "one-time URLs are of no instance", instance_id=instance_id, why=str(refused)
                )
            with op.database.write() as db:
                one_time_urls.forget(db, some)
            _log.info("one-time URLs ended", instance_id=instance_id, count=len(some))


def lapsed_urls(database: Database, cell_id: str) -> dict[str, dict[str, float]]:
    """By instance: when each expires."""
    lapsed: defaultdict[str, dict[str, float]] = defaultdict(dict)
    with database.read() as db:
        at = now(db)
        for asked in one_time_urls.asked_for(db, cell_id, at):
            # Once for all that one caller asked for: others' right must not wait for a crowd's.
            if not _is_held(db, asked.instance, asked.holder, asked.action, at):
                for url in one_time_urls.of(db, asked, at):
                    lapsed[asked.instance.id][url.id] = url.expires_at.timestamp()
    return lapsed


def _lanes(db: Session) -> dict[str, dict[str, Any]]:
    """Of the cells that have any: a lane of its own, as others wait there for the cell."""
    cell_ids = one_time_urls.cells_with_unexpired(db, now(db))
    return {f"access:{cell_id}": {"cell_id": cell_id} for cell_id in cell_ids}


def _is_held(db: Session, instance: Instance, holder: str, kind: str, at: datetime) -> bool:
    permission = PERMISSIONS.get(kind)
    if permission is None:
        return False
    return _rights(db, instance.org_id, holder, at).has(permission, instance.place)


def _rights(db: Session, org_id: str, holder: str, moment: datetime) -> Rights:
    """Of a key or session in the organization now; none where it is not in force."""
    key, session = db.get(ApiKey, holder), db.get(UserSession, holder)
    proof = key or session
    if proof is None or not proof.is_live(moment) or (key is not None and key.org_id != org_id):
        return NOTHING
    org = db.get_one(Organization, org_id)
    age_max_s = org.api_key_max_age_s if key is not None else org.session_max_age_s
    if is_too_old(proof.created_at, age_max_s, moment):
        return NOTHING
    user_id = key.created_by if key is not None else session.user_id if session else ""
    member = role_holders.of_member(db, org_id, user_id)
    if member is None:
        granted = role_holders.of_support(db, org_id, user_id, moment) if session else []
        return combined(granted)
    return member.rights if key is None else member.left_to(key)


SCHEDULE: Final = Schedule("access", end_urls, every_s=URLS_EVERY_S, lanes=_lanes)
