"""Groups of an identity provider, who is in them, and the roles that an organization gives by them.

Somebody is in a group because the provider pushed it (SCIM), or because it said so when they
signed in (a claim). Each is kept apart, so that neither takes what the other gave. A role given by
a group is in no other record: it is there as long as they are in the group, and goes with it.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Select,
    UniqueConstraint,
    and_,
    delete,
    exists,
    func,
    or_,
    select,
    union,
)
from sqlalchemy.orm import Mapped, Session, mapped_column
from sqlalchemy.sql.selectable import ScalarSelect

from storage import identifiers, pages
from storage.access.memberships import Membership
from storage.access.teams import ROLES as TEAM_ROLES
from storage.columns import DatabaseClock, Owned, Record, Timestamp, one_of
from storage.errors import RecordNotFound
from storage.json_rows import JsonArray, JsonObject
from storage.lookups import by_key
from storage.pages import Page
from storage.sso.scim_users import folded

ORG_ROLES: Final = ("admin", "developer", "member", "auditor")
"""What a group can give in the organization: nobody becomes an owner by one."""


class ScimGroup(Owned, Record):
    __tablename__ = "scim_groups"
    __table_args__ = (
        one_of("org_role", ORG_ROLES),
        one_of("team_role", TEAM_ROLES),
        UniqueConstraint("org_id", "name_key"),
        Index(None, "org_id", "external_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"))
    display_name: Mapped[str]
    name_key: Mapped[str]
    external_id: Mapped[str | None]
    # By SCIM. Others were named in a sign-in only, and SCIM knows nothing of them.
    is_pushed: Mapped[bool]
    org_role: Mapped[str | None]
    # Both or neither; with the team, its role ends.
    team_id: Mapped[str | None] = mapped_column(
        ForeignKey("teams.id", ondelete="SET NULL"), index=True
    )
    team_role: Mapped[str | None]
    version: Mapped[int] = mapped_column(default=1)
    updated_at: Mapped[datetime] = mapped_column(Timestamp(), default=DatabaseClock())

    def rename(self, display_name: str) -> None:
        self.display_name, self.name_key = display_name, folded(display_name)

    def grant(self, org_role: str | None, team_id: str | None, team_role: str | None) -> None:
        """From now on, everybody in the group holds these roles by it."""
        assert (team_id is None) == (team_role is None), "a role is in a team"
        self.org_role, self.team_id, self.team_role = org_role, team_id, team_role

    def touch(self, at: datetime) -> None:
        self.version += 1
        self.updated_at = at


class ScimGroupMember(Owned, Record):
    """Pushed by SCIM; it ends when the provider takes them out, or deletes them."""

    __tablename__ = "scim_group_members"
    __table_args__ = (
        ForeignKeyConstraint(
            ["org_id", "user_id"],
            ["scim_users.org_id", "scim_users.user_id"],
            ondelete="CASCADE",
        ),
        Index(None, "org_id", "user_id"),
    )

    group_id: Mapped[str] = mapped_column(
        ForeignKey("scim_groups.id", ondelete="CASCADE"), primary_key=True
    )
    user_id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str]


class GroupClaim(Owned, Record):
    """Said when somebody signed in through a connection; it ends with their next sign-in there."""

    __tablename__ = "sso_group_claims"
    __table_args__ = (
        ForeignKeyConstraint(
            ["org_id", "user_id"],
            ["memberships.org_id", "memberships.user_id"],
            ondelete="CASCADE",
        ),
        Index(None, "org_id", "user_id"),
    )

    group_id: Mapped[str] = mapped_column(
        ForeignKey("scim_groups.id", ondelete="CASCADE"), primary_key=True
    )
    user_id: Mapped[str] = mapped_column(primary_key=True)
    connection_id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str]


def create(
    db: Session, org_id: str, display_name: str, *, external_id: str | None, is_pushed: bool
) -> ScimGroup:
    group = ScimGroup(
        id=identifiers.new("sgrp_"), org_id=org_id, external_id=external_id, is_pushed=is_pushed
    )
    group.rename(display_name)
    db.add(group)
    db.flush()
    return group


def fetch(db: Session, org_id: str, group_id: str, *, lock: bool = False) -> ScimGroup:
    """The organization's, pushed or claimed; `lock` holds it until the commit."""
    group = by_key(db, ScimGroup, group_id, lock=lock)
    if group is None or group.org_id != org_id:
        raise RecordNotFound("SCIM group not found")
    return group


def page(db: Session, org_id: str, *, limit: int, after: str | None) -> Page[ScimGroup]:
    """All of the organization, newest first."""
    rows = select(ScimGroup).where(ScimGroup.org_id == org_id)
    return pages.keyset(db, rows, ScimGroup.id, limit=limit, after=after)


def count(db: Session, org_id: str) -> int:
    rows = select(func.count()).select_from(ScimGroup).where(ScimGroup.org_id == org_id)
    return db.scalars(rows).one()


def by_name(db: Session, org_id: str, display_name: str) -> ScimGroup | None:
    rows = select(ScimGroup).where(ScimGroup.org_id == org_id)
    return db.scalars(rows.where(ScimGroup.name_key == folded(display_name))).one_or_none()


def named(db: Session, org_id: str, names: Collection[str]) -> list[ScimGroup]:
    """Those that go by one of these: by their external id as it is, or by their display name."""
    keys = [folded(name) for name in names]
    rows = select(ScimGroup).where(ScimGroup.org_id == org_id)
    return list(
        db.scalars(
            rows.where(or_(ScimGroup.name_key.in_(keys), ScimGroup.external_id.in_(list(names))))
        )
    )


def pushed_members(db: Session, org_id: str, group_ids: Collection[str]) -> list[tuple[str, str]]:
    """Group and user, of those whom SCIM has put into these groups."""
    rows = select(ScimGroupMember.group_id, ScimGroupMember.user_id)
    rows = rows.where(ScimGroupMember.org_id == org_id, ScimGroupMember.group_id.in_(group_ids))
    return list(db.execute(rows.order_by(ScimGroupMember.user_id)).tuples())


def with_pushed_member(user_id: str) -> Select[str]:
    """The ids of groups that SCIM has put them into, for a query within the organization."""
    return select(ScimGroupMember.group_id).where(ScimGroupMember.user_id == user_id)


def pushed_sizes(db: Session, org_id: str, group_ids: Collection[str]) -> dict[str, int]:
    """How many SCIM has put into each of these groups."""
    rows = select(ScimGroupMember.group_id, func.count()).group_by(ScimGroupMember.group_id)
    rows = rows.where(ScimGroupMember.org_id == org_id, ScimGroupMember.group_id.in_(group_ids))
    return dict.fromkeys(group_ids, 0) | dict(db.execute(rows).tuples().all())


def of_pushed(db: Session, org_id: str, user_id: str) -> list[ScimGroup]:
    """The groups that SCIM has put them into."""
    rows = select(ScimGroup).join(ScimGroupMember, ScimGroupMember.group_id == ScimGroup.id)
    rows = rows.where(ScimGroup.org_id == org_id, ScimGroupMember.user_id == user_id)
    return list(db.scalars(rows))


def pushed_groups(
    db: Session, org_id: str, user_ids: Collection[str]
) -> list[tuple[str, str, str]]:
    """User, group and the name of the group, of the groups that SCIM has put these people into."""
    rows = select(ScimGroupMember.user_id, ScimGroup.id, ScimGroup.display_name)
    rows = rows.join(ScimGroup, ScimGroup.id == ScimGroupMember.group_id)
    rows = rows.where(ScimGroupMember.org_id == org_id, ScimGroupMember.user_id.in_(user_ids))
    return list(db.execute(rows.order_by(ScimGroup.id)).tuples())


def put_members(db: Session, group: ScimGroup, user_ids: Collection[str]) -> None:
    """Add these, who were pushed and are not in it yet."""
    ids = {"group_id": group.id, "org_id": group.org_id}
    db.add_all(ScimGroupMember(**ids, user_id=user_id) for user_id in user_ids)
    db.flush()


def take_members(db: Session, group: ScimGroup, user_ids: Collection[str]) -> None:
    """Take these out; what claims say of them stays."""
    db.execute(
        delete(ScimGroupMember).where(
            ScimGroupMember.org_id == group.org_id,
            ScimGroupMember.group_id == group.id,
            ScimGroupMember.user_id.in_(user_ids),
        )
    )


def sizes(db: Session, org_id: str, group_ids: Collection[str]) -> dict[str, int]:
    """How many are in each of these groups, by SCIM or by a claim."""
    found = dict.fromkeys(group_ids, 0)
    people = union(
        *(
            select(each.group_id, each.user_id).where(
                each.org_id == org_id, each.group_id.in_(group_ids)
            )
            for each in (ScimGroupMember, GroupClaim)
        )
    ).subquery()
    rows = select(people.c.group_id, func.count()).group_by(people.c.group_id)
    return found | dict(db.execute(rows).tuples().all())


def claims(db: Session, org_id: str, user_id: str, connection_id: str) -> set[str]:
    """The ids of the groups that the connection said they are in."""
    rows = select(GroupClaim.group_id).where(
        GroupClaim.org_id == org_id,
        GroupClaim.user_id == user_id,
        GroupClaim.connection_id == connection_id,
    )
    return set(db.scalars(rows))


def is_claimed(db: Session, group: ScimGroup) -> bool:
    """Whether somebody is in it by a claim."""
    rows = select(GroupClaim.user_id).where(
        GroupClaim.org_id == group.org_id, GroupClaim.group_id == group.id
    )
    return db.scalar(rows.limit(1)) is not None


def claim(db: Session, org_id: str, user_id: str, connection_id: str, ids: Collection[str]) -> None:
    """From now on, they are in these groups by what the connection says, and in no others by it."""
    before = claims(db, org_id, user_id, connection_id)
    whose = {"org_id": org_id, "user_id": user_id, "connection_id": connection_id}
    db.execute(
        delete(GroupClaim).where(
            GroupClaim.org_id == org_id,
            GroupClaim.user_id == user_id,
            GroupClaim.connection_id == connection_id,
            GroupClaim.group_id.in_(before - set(ids)),
        )
    )
    db.add_all(GroupClaim(**whose, group_id=group_id) for group_id in set(ids) - before)
    db.flush()


def end_claims(db: Session, org_id: str, connection_id: str) -> None:
    """Of a connection that is no more: nobody is in a group by it."""
    db.execute(
        delete(GroupClaim).where(
            GroupClaim.org_id == org_id, GroupClaim.connection_id == connection_id
        )
    )


def gives_to_member(
    org_roles: Collection[str], team_id: str | None = None, team_roles: Collection[str] = ()
) -> ColumnElement[bool]:
    """Whether the member of an outer query has one of these roles by a group."""
    in_team = and_(ScimGroup.team_id == team_id, ScimGroup.team_role.in_(team_roles))
    gives = (
        or_(ScimGroup.org_role.in_(org_roles), in_team)
        if team_id
        else (ScimGroup.org_role.in_(org_roles))
    )
    rows = exists().where(ScimGroup.org_id == Membership.org_id, gives)
    return rows.where(ScimGroup.id.in_(_of_member())).correlate(Membership)


def _of_member() -> CompoundSelect[tuple[str]]:
    """The groups of the member of an outer query, pushed and claimed."""
    return union(
        *(
            select(each.group_id)
            .where(each.org_id == Membership.org_id, each.user_id == Membership.user_id)
            .correlate(Membership)
            for each in (ScimGroupMember, GroupClaim)
        )
    )


def granted_to_member() -> ScalarSelect[Any]:
    """Of the membership of an outer query: role in the org, team and role there, by group."""
    given = JsonArray(ScimGroup.org_role, ScimGroup.team_id, ScimGroup.team_role)
    return (
        select(JsonObject(ScimGroup.id, given))
        .where(
            ScimGroup.id.in_(_of_member()),
            ScimGroup.org_id == Membership.org_id,
            or_(ScimGroup.org_role.is_not(None), ScimGroup.team_id.is_not(None)),
        )
        .correlate(Membership)
        .scalar_subquery()
    )
