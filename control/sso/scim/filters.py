"""Filters of lists, as conditions on columns; those that cannot be are looked at one by one.

A condition is made of columns and parameters, never of text: no filter can say anything else.
"""

from collections.abc import Mapping
from typing import Any, Final

from scim2_models.path import (
    AttrPath,
    CompareOperator,
    Comparison,
    FilterNode,
    FilterVisitor,
    LogicalExpr,
    LogicalOperator,
    Not,
    Present,
    ValuePath,
)
from sqlalchemy import ColumnElement, and_, or_
from sqlalchemy.orm import InstrumentedAttribute

from control.sso.scim.resources import Group, User
from storage.access.memberships import Membership
from storage.sso import scim_groups
from storage.sso.scim_groups import ScimGroup
from storage.sso.scim_users import ScimUser, folded

_Column = InstrumentedAttribute[Any]
_FOLDED: Final[Mapping[Any, Mapping[str, _Column]]] = {
    User: {"username": ScimUser.user_name_key},
    Group: {"displayname": ScimGroup.name_key},
}
_EXACT: Final[Mapping[Any, Mapping[str, _Column]]] = {
    User: {"id": ScimUser.user_id, "externalid": ScimUser.external_id},
    Group: {"id": ScimGroup.id, "externalid": ScimGroup.external_id},
}
# Entra ID asks by the first of these whether somebody is in a group.
_MEMBERS: Final = ("members", "members.value")


class NotOfColumns(Exception):  # noqa: N818 -- a fact about a filter
    """The filter asks for what is in no column."""


def condition(model: type[User] | type[Group], node: FilterNode) -> ColumnElement[bool]:
    """What the filter asks for. Raises NotOfColumns."""
    return _Conditions(model).visit(node)


class _Conditions(FilterVisitor[ColumnElement[bool]]):
    def __init__(self, model: type[User] | type[Group]) -> None:
        self._model = model

    def visit_comparison(self, node: Comparison) -> ColumnElement[bool]:
        name = _name(node.attr_path)
        if node.op is CompareOperator.eq:
            if name == "active" and self._model is User and isinstance(node.value, bool):
                is_member = Membership.user_id
                return is_member.is_not(None) if node.value else is_member.is_(None)
            if isinstance(node.value, str):
                return self._equals(name, node.value)
        raise NotOfColumns

    def _equals(self, name: str, value: str) -> ColumnElement[bool]:
        if name in _MEMBERS and self._model is Group:
            return ScimGroup.id.in_(scim_groups.with_pushed_member(value))
        if name in _FOLDED[self._model]:
            return _FOLDED[self._model][name] == folded(value)
        if name in _EXACT[self._model]:
            return _EXACT[self._model][name] == value
        raise NotOfColumns

    def visit_logical_expr(self, node: LogicalExpr) -> ColumnElement[bool]:
        join = and_ if node.op is LogicalOperator.and_ else or_
        return join(*(self.visit(term) for term in node.terms))

    def visit_present(self, _node: Present) -> ColumnElement[bool]:
        raise NotOfColumns

    def visit_not(self, _node: Not) -> ColumnElement[bool]:
        raise NotOfColumns

    def visit_value_path(self, node: ValuePath) -> ColumnElement[bool]:
        """As `members[value eq "…"]`, which means what `members.value eq "…"` does."""
        within = node.val_filter
        if node.sub_attr is not None or not isinstance(within, Comparison):
            raise NotOfColumns
        name = f"{_name(node.attr_path)}.{_name(within.attr_path)}"
        if within.op is not CompareOperator.eq or not isinstance(within.value, str):
            raise NotOfColumns
        return self._equals(name, within.value)


def _name(path: AttrPath) -> str:
    if path.uri is not None:
        raise NotOfColumns
    return ".".join(filter(None, (path.attr, path.sub_attr))).lower()
