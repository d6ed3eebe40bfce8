"""What of a JSON Schema has changed so that programs which knew the former one would break."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

ANY: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
Schema = Mapping[str, Any] | bool


@dataclass
class Shape:
    """What a value may be: parts that hold together are one, of alternatives any may be."""

    types: frozenset[str] = ANY
    members: dict[str, Schema] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    values: frozenset[str] | None = None
    items: Schema | None = None


class Shapes:
    """Reads the schemas of one document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def at(self, node: Any) -> Any:
        """What the node refers to, or the node."""
        while isinstance(node, Mapping) and "$ref" in node:
            found: Any = self._document
            for part in node["$ref"].removeprefix("#/").split("/"):
                found = found[part.replace("~1", "/").replace("~0", "~")]
            node = found
        return node

    def of(self, schema: Schema) -> Shape:
        node = self.at(schema)
        if not isinstance(node, Mapping):
            return Shape()
        named = node.get("type", ())
        types = frozenset([named] if isinstance(named, str) else named) or ANY
        values = node.get("enum", [node["const"]] if "const" in node else None)
        shape = Shape(
            types | {"integer"} if "number" in types else types,
            dict(node.get("properties", {})),
            frozenset(node.get("required", ())),
            None if values is None else frozenset(map(repr, values)),
            node.get("items"),
        )
        for part in node.get("allOf", ()):
            shape = _both(shape, self.of(part))
        for keyword in ("oneOf", "anyOf"):
            if node.get(keyword):
                shape = _both(shape, self._any_of(node[keyword]))
        return shape

    def _any_of(self, branches: list[Schema]) -> Shape:
        first, *others = map(self.of, branches)
        for other in others:
            both = first.values is not None and other.values is not None
            # Null says nothing of members, and an alternative without any has none.
            objects = [one for one in (first, other) if one.types - {"null"}]
            required = [one.required for one in objects if "object" in one.types]
            first = Shape(
                first.types | other.types,
                {**other.members, **first.members},
                frozenset.intersection(*required) if required else frozenset(),
                (first.values or frozenset()) | (other.values or frozenset()) if both else None,
                first.items or other.items,
            )
        return first


def _both(one: Shape, other: Shape) -> Shape:
    values = [each.values for each in (one, other) if each.values is not None]
    return Shape(
        one.types & other.types,
        {**other.members, **one.members},
        one.required | other.required,
        frozenset.intersection(*values) if values else None,
        one.items or other.items,
    )


@dataclass(frozen=True)
class _Comparison:
    """Of the schemas of two documents; `sent` by the service, or else taken by it."""

    before: Shapes
    now: Shapes
    sent: bool

    def changes(
        self, before: Schema, now: Schema, where: str, open_: frozenset[str] = frozenset()
    ) -> Iterator[str]:
        reference = str(before.get("$ref", "")) if isinstance(before, Mapping) else ""
        if reference in open_:
            return
        within = open_ | {reference} if reference else open_
        old, new = self.before.of(before), self.now.of(now)
        yield from (f"{where} {told}" for told in self._of_value(old, new))
        for name, member in old.members.items():
            if name in new.members:
                pair = member, new.members[name]
                yield from self.changes(*pair, f"{where}: {name}", within)
            else:
                refused = "" if self.sent else ", and is refused where it is sent"
                yield f"{where}: {name} was removed{refused}"
        for name in sorted(self._required(old, new)):
            yield f"{where}: {name} {'may now be left out' if self.sent else 'is now required'}"
        if old.items is not None and new.items is not None:
            yield from self.changes(old.items, new.items, f"{where}: items", within)

    def _of_value(self, old: Shape, new: Shape) -> Iterator[str]:
        gained, lost = new.types - old.types, old.types - new.types
        if self.sent and gained:
            yield f"can now be {_listed(gained)}, and was {_listed(old.types)}"
        if not self.sent and lost:
            yield f"can no longer be {_listed(lost)}"
        if new.values is None:
            return
        if old.values is not None and old.values - new.values:
            yield f"can no longer be {_listed(old.values - new.values)}"
        if not self.sent and old.values is None:
            yield f"can now be only {_listed(new.values)}"

    def _required(self, old: Shape, new: Shape) -> frozenset[str]:
        """Members of which it has changed to the worse whether they must be there."""
        if self.sent:
            return (old.required - new.required) & new.members.keys()
        return new.required - old.required


def changes(
    shapes: tuple[Shapes, Shapes], before: Schema, now: Schema, where: str, *, sent: bool
) -> Iterator[str]:
    """A sentence for each; `sent` by the service (an answer, an event), or else taken by it."""
    return _Comparison(*shapes, sent).changes(before, now, where)


def _listed(found: frozenset[str]) -> str:
    return ", ".join(sorted(found))
