"""Groups that an identity provider names when somebody signs in, and the roles given by them.

Which roles a group gives, an administrator of the organization decides; they are read with all
other rights of a member (`storage/sso/scim_groups.py`), so nothing is copied here.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from control.policy.quotas import GROUPS_MAX
from storage.sso import scim_groups
from storage.sso.scim_groups import ScimGroup
from storage.sso.scim_users import folded

CLAIMED_MAX: Final = 200
"""Groups that one sign-in can name; a provider that has more is told to send those in use only."""
NAME_MAX: Final = 255


def claimed(
    db: Session,
    org_id: str,
    user_id: str,
    connection_id: str,
    group_names: Collection[str],
    now: datetime,  # noqa: ARG001 -- of the interface; what is claimed holds until the next sign-in
) -> list[str]:
    """The member is in these groups now, as far as this connection says; the ids of the groups.

    A name is a group's external id, or its display name in whatever case. One that is not known is
    made, which gives nothing until somebody decides what. What SCIM has pushed stays as it is.
    """
    names = [name for name in dict.fromkeys(group_names) if 0 < len(name) <= NAME_MAX]
    names = names[:CLAIMED_MAX]
    known = _by_name(scim_groups.named(db, org_id, names))
    room = GROUPS_MAX - scim_groups.count(db, org_id)
    ids: dict[str, None] = {}
    for name in names:
        group = known.get(name) or known.get(folded(name))
        if group is None and room > 0:
            group = scim_groups.create(db, org_id, name, external_id=None, is_pushed=False)
            known[folded(name)], room = group, room - 1
        if group is not None:
            ids[group.id] = None
    scim_groups.claim(db, org_id, user_id, connection_id, list(ids))
    return list(ids)


def forget(db: Session, org_id: str, connection_id: str) -> None:
    """Of a connection that is deleted: nobody holds a role any more by what it said."""
    scim_groups.end_claims(db, org_id, connection_id)


def _by_name(groups: Collection[ScimGroup]) -> dict[str, ScimGroup]:
    """By display name, and before that by external id, which is the provider's own."""
    found = {group.name_key: group for group in groups}
    return found | {group.external_id: group for group in groups if group.external_id}
