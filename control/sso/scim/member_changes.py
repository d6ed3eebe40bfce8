"""What a PATCH does to the members of a group, read as sets of ids.

A group may have thousands of members, and a provider sends a change of one of them a thousand
times. Providers differ in how they say it; all that they are documented to send is understood here.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pydantic import BaseModel
from scim2_models import InvalidValueException, PatchOperation
from scim2_models.path import AttrPath, CompareOperator, Comparison, ValuePath

_MEMBERS: Final = "members"
_GROUP: Final = "urn:ietf:params:scim:schemas:core:2.0:group"
_ID_LENGTH: Final = 100
Operation = Any  # PatchOperation, which Python cannot name without a resource
Op: Final = PatchOperation.Op


class MemberChange(NamedTuple):
    """`ids` are put in, taken out, or all that there are from then on."""

    act: str
    ids: frozenset[str]

    def to(self, members: frozenset[str]) -> frozenset[str]:
        if self.act == Op.add:
            return members | self.ids
        return members - self.ids if self.act == Op.remove else self.ids


class Split(NamedTuple):
    """The changes of members, in their order, and what the PATCH does beside them."""

    changes: list[MemberChange]
    rest: list[Operation]


def split(operations: Sequence[Operation]) -> Split | None:
    """None where an operation does something else to members, such as to one's display name."""
    found = Split([], [])
    for each in operations:
        if each.path is None:
            _split_values(each, found)
        elif not _is_of_members(each):
            found.rest.append(each)
        elif (change := _change(each)) is None:
            return None
        else:
            found.changes.append(change)
    return found


def _split_values(operation: Operation, found: Split) -> None:
    """Without a path, the value has the attributes, among which Okta may send members."""
    if not isinstance(operation.value, dict):
        found.rest.append(operation)
        return
    rest = {}
    for name, value in operation.value.items():
        if name.lower() in (_MEMBERS, f"{_GROUP}:{_MEMBERS}"):
            act = Op.add if operation.op == Op.add else Op.replace_
            found.changes.append(MemberChange(act, _ids(value)))
        else:
            rest[name] = value
    if rest:
        found.rest.append(operation.model_copy(update={"value": rest}))


def _is_of_members(operation: Operation) -> bool:
    node = _node(operation)
    path = node if isinstance(node, AttrPath) else getattr(node, "attr_path", None)
    return path is not None and path.attr.lower() == _MEMBERS


def _change(operation: Operation) -> MemberChange | None:
    node = _node(operation)
    if isinstance(node, AttrPath) and node.sub_attr is None:
        if operation.op == Op.remove and operation.value is None:
            return MemberChange(Op.replace_, frozenset())
        return MemberChange(operation.op, _ids(operation.value))
    if operation.op != Op.remove or not isinstance(node, ValuePath) or node.sub_attr is not None:
        return None
    chosen = node.val_filter
    if not isinstance(chosen, Comparison) or chosen.op is not CompareOperator.eq:
        return None
    if chosen.attr_path.attr.lower() != "value" or not isinstance(chosen.value, str):
        return None
    return MemberChange(Op.remove, frozenset({chosen.value}))


def _node(operation: Operation) -> Any:
    return operation.path.ast if operation.path is not None else None


def _ids(value: Any) -> frozenset[str]:
    listed = value if isinstance(value, list) else [] if value is None else [value]
    return frozenset(_id(each) for each in listed)


def _id(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = getattr(value, "value", None)
    elif isinstance(value, dict):
        value = next((one for name, one in value.items() if name.lower() == "value"), None)
    if not isinstance(value, str) or not 0 < len(value) <= _ID_LENGTH:
        raise InvalidValueException(detail="a member must have the id of a user as its value")
    return value
