"""The users and groups of an organization, as the SCIM protocol reads and changes them."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, Final, cast

from scim2_models import (
    Error,
    NotFoundException,
    Path,
    PreconditionFailedException,
    Resource,
    ResourceType,
    ResponseParameters,
    SCIMException,
    SearchRequest,
    TooManyException,
)
from scim2_server.storage import ScimStorage, SearchPage
from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.exc import IntegrityError

from control.sso.scim import errors, filters, groups, people
from control.sso.scim.call import ScimCall
from control.sso.scim.resources import Group, User, group_of, members_of, pushed_by, user_of
from specserver import Problem
from storage import conflicts
from storage.access.memberships import Membership
from storage.errors import StateConflict
from storage.sso import scim_groups
from storage.sso.scim_groups import ScimGroup
from storage.sso.scim_users import JOINED, ScimUser

Rows = Select[*tuple[Any, ...]]
SCANNED_MAX: Final = 5_000
"""Resources that one search looks at one by one, where its filter or order is of no column."""
MEMBERS_AT_ONCE: Final = 20_000
"""Members of all groups of one page, and of all that a search looks at: each is an object."""


class Directory(ScimStorage):
    """For one request. Within `operation`, what fails leaves nothing behind."""

    def __init__(self, call: ScimCall) -> None:
        self._call = call

    @contextmanager
    def operation(self) -> Iterator[None]:
        try:
            with self._call.held():
                yield
        except Problem as problem:
            raise of_problem(problem) from problem
        except StateConflict as error:
            raise of_problem(errors.of_conflict(error)) from error
        except IntegrityError as error:
            conflict = conflicts.of(error)
            if conflict is None:
                raise
            raise of_problem(errors.of_conflict(conflict)) from error

    # Reading.

    def get(
        self,
        resource_type: ResourceType,
        resource_id: str,
        *,
        response_parameters: ResponseParameters[Any] | None = None,
    ) -> Resource[Any]:
        if resource_type.name == "User":
            return self._users([self._user(resource_id)], response_parameters)[0]
        return self._with_members([group_of(self.group(resource_id))], response_parameters)[0]

    def search(
        self,
        resource_types: list[ResourceType],
        search_request: SearchRequest[Any],
        *,
        position: Any = None,  # noqa: ARG002 -- of the interface; pages are by index
    ) -> SearchPage:
        names = [one.name for one in resource_types]
        first, count = search_request.start_index_0 or 0, search_request.count or 0
        if len(names) == 1 and search_request.sort_by is None:
            model = User if names[0] == "User" else Group
            try:
                asked = search_request.filter
                which = None if asked is None else filters.condition(model, asked.ast)
            except filters.NotOfColumns:
                pass
            else:
                return self._page(model, which, search_request, first, count)
        found = [
            one
            for one in self._all(names, search_request)
            if search_request.filter is None
            or type(search_request.filter)[type(one)](str(search_request.filter)).match(one)  # type: ignore[index]
        ]
        ordered = search_request.sort(found)[first : first + count]
        return SearchPage(len(found), self._with_members(ordered, search_request))

    def _page(
        self,
        model: type[User] | type[Group],
        which: ColumnElement[bool] | None,
        asked: SearchRequest[Any],
        first: int,
        count: int,
    ) -> SearchPage:
        db = self._call.db
        rows: Rows = self._user_rows() if model is User else self._group_rows()
        if which is not None:
            rows = rows.where(which)
        total = db.scalars(select(func.count()).select_from(rows.subquery())).one()
        key = ScimUser.user_id if model is User else ScimGroup.id
        found = db.execute(rows.order_by(key).offset(first).limit(count)).tuples().all()
        if model is User:
            return SearchPage(total, list(self._users(found, asked)))
        return SearchPage(total, self._with_members([group_of(row[0]) for row in found], asked))

    def _all(self, names: Sequence[str | None], asked: SearchRequest[Any]) -> list[Resource[Any]]:
        """Groups without their members, unless these are what is asked about."""
        found: list[Resource[Any]] = []
        for name in names:
            rows: Rows = self._user_rows() if name == "User" else self._group_rows()
            some = self._call.db.execute(rows.limit(SCANNED_MAX + 1)).tuples().all()
            if len(some) > SCANNED_MAX:
                raise TooManyException(
                    detail=f"there are more than {SCANNED_MAX:,} resources to look through: filter"
                    " by id, externalId, active, and userName or displayName with eq"
                )
            if name == "User":
                found += self._users(some, None)
            else:
                found += self._compared([group_of(row[0]) for row in some], asked)
        return found

    def _compared(self, groups: list[Group], asked: SearchRequest[Any]) -> Sequence[Resource[Any]]:
        if "members" not in f"{asked.filter or ''} {asked.sort_by or ''}".lower():
            return groups
        if len(found := self._with_members(groups, None)) < len(groups):
            raise TooManyException(
                detail=f"the groups have more than {MEMBERS_AT_ONCE:,} members to look through: ask"
                ' by members.value with eq, such as members[value eq "…"]'
            )
        return found

    def _user_rows(self) -> Rows:
        rows: Rows = select(ScimUser, Membership.user_id).outerjoin(Membership, JOINED)
        return rows.where(ScimUser.org_id == self._call.org.id)

    def _group_rows(self) -> Rows:
        rows = select(ScimGroup).where(ScimGroup.org_id == self._call.org.id)
        return rows.where(ScimGroup.is_pushed)

    def _user(self, user_id: str) -> tuple[ScimUser, str | None]:
        row = self._call.db.execute(self._user_rows().where(ScimUser.user_id == user_id)).first()
        if row is None:
            raise NotFoundException(detail=f"there is no user with the id {user_id!r:.100}")
        return cast("tuple[ScimUser, str | None]", row.tuple())

    def group(self, group_id: str) -> ScimGroup:
        """A pushed one. Raises NotFoundException."""
        found = self._call.db.scalars(self._group_rows().where(ScimGroup.id == group_id)).first()
        if found is None:
            raise NotFoundException(detail=f"there is no group with the id {group_id!r:.100}")
        return cast("ScimGroup", found)

    def _users(
        self,
        rows: Sequence[tuple[ScimUser, str | None]],
        asked: ResponseParameters[Any] | None,
    ) -> list[User]:
        of_user: dict[str, list[tuple[str, str]]] = {}
        if _wants(asked, "groups"):
            ids = [record.user_id for record, _ in rows]
            for user_id, *group in scim_groups.pushed_groups(self._call.db, self._call.org.id, ids):
                of_user.setdefault(user_id, []).append((group[0], group[1]))
        return [
            user_of(record, is_active=member is not None, groups=of_user.get(record.user_id))
            for record, member in rows
        ]

    def _with_members(
        self, page: Sequence[Resource[Any]], asked: ResponseParameters[Any] | None
    ) -> list[Resource[Any]]:
        """With the members of groups that are asked for; fewer groups where these are too many."""
        if not _wants(asked, "members"):
            return list(page)
        db, org_id, room = self._call.db, self._call.org.id, MEMBERS_AT_ONCE
        groups = {one.id: one for one in page if isinstance(one, Group) and one.id is not None}
        sizes = scim_groups.pushed_sizes(db, org_id, groups) if groups else {}
        fitting: list[Resource[Any]] = []
        for one in page:
            room -= sizes.get(one.id or "", 0)
            # The first is there in any case, so that whoever asks for the next page gets on.
            if room < 0 and fitting:
                break
            fitting.append(one)
        found: dict[str, list[str]] = {}
        ids = [one.id for one in fitting if one.id in groups]
        for group_id, user_id in scim_groups.pushed_members(db, org_id, ids) if ids else ():
            found.setdefault(group_id, []).append(user_id)
        for group_id, members in found.items():
            groups[group_id].members = members_of(members)
        return fitting

    # Changing.

    def create(self, resource_type: ResourceType, resource: Resource[Any]) -> Resource[Any]:
        if isinstance(resource, User):
            made = people.create(self._call, pushed_by(resource))
            return self.get(resource_type, made.user_id)
        assert isinstance(resource, Group)
        group = groups.create(
            self._call, resource.display_name or "", resource.external_id, members_in(resource)
        )
        return self.get(resource_type, group.id)

    def update(
        self,
        resource_type: ResourceType,
        resource: Resource[Any],
        *,
        expected_version: str | None = None,
    ) -> Resource[Any]:
        assert resource.id is not None
        self._check_version(resource_type, resource.id, expected_version)
        if isinstance(resource, User):
            record, _ = self._user(resource.id)
            people.update(self._call, record, pushed_by(resource))
        else:
            assert isinstance(resource, Group)
            self.update_group(self.group(resource.id), resource, set(members_in(resource)))
        return self.get(resource_type, resource.id)

    def update_group(
        self, record: ScimGroup, group: Group, members: AbstractSet[str] | None
    ) -> None:
        name = group.display_name or ""
        groups.update(self._call, record, name, group.external_id, members)

    def delete(
        self,
        resource_type: ResourceType,
        resource_id: str,
        *,
        expected_version: str | None = None,
    ) -> None:
        self._check_version(resource_type, resource_id, expected_version)
        if resource_type.name == "User":
            people.remove(self._call, self._user(resource_id)[0])
        else:
            groups.delete(self._call, self.group(resource_id))

    def members(self, group: ScimGroup) -> set[str]:
        """The ids of those who are in it."""
        return groups.members_of(self._call, group)

    def _check_version(
        self, resource_type: ResourceType, resource_id: str, expected: str | None
    ) -> None:
        """It cannot change while the organization is held; this is for who does not hold it."""
        if expected is None:
            return
        meta = self.get(resource_type, resource_id, response_parameters=_BARE).meta
        if meta is None or meta.version != expected:
            raise PreconditionFailedException


_BARE: Final[ResponseParameters[Any]] = ResponseParameters(attributes=[Path("meta")])


def members_in(group: Group) -> list[str]:
    """The ids that the members of a group are named by."""
    return [each.value or "" for each in group.members or ()]


def of_problem(problem: Problem) -> SCIMException:
    """As the protocol has it, alone or in a bulk request."""
    status, scim_type = errors.status_of(problem)
    return SCIMException.from_error(
        Error(status=status, scim_type=scim_type, detail=errors.detail_of(problem))
    )


def _wants(asked: ResponseParameters[Any] | None, name: str) -> bool:
    """Whether the attribute is to be in the response; what costs nothing is there anyway."""
    if asked is None:
        return True
    if asked.attributes:
        return any(_is(path, name) for path in asked.attributes)
    return not any(_is(path, name) for path in asked.excluded_attributes or ())


def _is(path: str, name: str) -> bool:
    return name in str(path).lower().rpartition(":")[2].split(".")
