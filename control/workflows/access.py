"""Open consoles and followed logs: told to end once the key or session that began them has."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import structlog
from sqlalchemy.orm import Session

from control.cells import Answer, CellClient
from control.policy import permissions, rights
from control.policy.rights import NOTHING, Rights
from storage import memberships, teams
from storage.api_keys import ApiKey
from storage.database import Database, now
from storage.instances import Instance
from storage.sessions import UserSession

PERMISSIONS: Final = {"console": "console:open", "logs": "logs:read"}
"""What each kind of access needs, while it lasts as at its beginning."""
_log = structlog.get_logger("access")


def end_lapsed(
    database: Database, cell: CellClient, known: Iterable[Instance], seen: dict[str, Answer]
) -> None:
    """Asked anew at each turn: rights end in many ways, and some of them by time alone."""
    held = [(one, told) for one in known if (told := seen.get(one.id, {}).get("access"))]
    if not held:
        return
    with database.read() as db:
        moment = now(db)
        lapsed = {
            instance.id: sorted(
                {each["holder"] for each in told if not _is_held(db, instance, each, moment)}
            )
            for instance, told in held
        }
    for instance_id, holders in lapsed.items():
        if holders:
            cell.end_access(instance_id, holders)
            _log.info("access ended", instance_id=instance_id, holders=holders)


def _is_held(db: Session, instance: Instance, told: Answer, moment: datetime) -> bool:
    granted = _rights(db, instance.org_id, told["holder"], moment)
    permission = PERMISSIONS.get(told["kind"])
    return permission is not None and granted.has(permission, instance)


def _rights(db: Session, org_id: str, holder: str, moment: datetime) -> Rights:
    """Of a key or session in the organization now; none where it is not in force."""
    key, session = db.get(ApiKey, holder), db.get(UserSession, holder)
    proof = key or session
    if proof is None or not proof.is_live(moment) or (key is not None and key.org_id != org_id):
        return NOTHING
    user_id = key.created_by if key is not None else session.user_id if session else ""
    membership = memberships.find(db, org_id, user_id)
    if membership is None:
        return NOTHING
    held = rights.of_member(
        membership.role,
        teams.roles_of(db, membership),
        everyone=teams.everyone_of(org_id),
        teams_only=membership.teams_only,
    )
    return held if key is None else held.cut(permissions.granted(key.role, key.scopes))
