"""Owns a document as it is written: read as JSON would be, and one whole of all its files."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml

from specserver.connexion_seam import InvalidSpecification


class DocumentInvalid(InvalidSpecification):  # type: ignore[misc]  # connexion is untyped
    """The document breaks OpenAPI 3.1, or asks for what specserver cannot serve."""


def read(path: Path) -> dict[str, Any]:
    """The document of this file and those it refers to, whose references lead inside it.

    A path and a webhook may be a `$ref` to another file's; any other reference to a file is to one
    of its components, and all components of a file become the document's. Nothing is changed
    otherwise. Raises DocumentInvalid.
    """
    files = _Files()
    root = path.resolve()
    document: dict[str, Any] = files.moved(files.load(root), root)
    for kind in ("paths", "webhooks"):
        if isinstance(document.get(kind), dict):
            document[kind] = {name: files.item(item, root) for name, item in document[kind].items()}
    components = files.components(root)
    return {**document, "components": components} if components else document


class _Files:
    """The files of one document, each loaded when a reference leads to it."""

    def __init__(self) -> None:
        self._loaded: dict[Path, dict[str, Any]] = {}

    def load(self, path: Path) -> dict[str, Any]:
        if path not in self._loaded:
            self._loaded[path] = load(path)
        return self._loaded[path]

    def moved(self, node: Any, home: Path) -> Any:
        """A copy whose references lead inside the whole, except those of paths and webhooks."""
        if isinstance(node, list):
            return [self.moved(item, home) for item in node]
        if not isinstance(node, dict):
            return node
        copy = {key: self.moved(value, home) for key, value in node.items()}
        reference = node.get("$ref")
        if isinstance(reference, str) and "#/components/" in reference:
            file, _, pointer = reference.partition("#")
            # In that file itself, as other tools look for it, and not somewhere in the whole.
            target(self.load(self._at(file, home, reference)), f"#{pointer}", reference)
            copy["$ref"] = f"#{pointer}"
        return copy

    def item(self, item: Any, home: Path) -> Any:
        """The path or webhook itself, where only a reference to it stands."""
        reference = item.get("$ref") if isinstance(item, dict) else None
        if not isinstance(reference, str) or reference.startswith("#"):
            return item
        file, _, pointer = reference.partition("#")
        place = self._at(file, home, reference)
        return self.moved(target(self.load(place), f"#{pointer}", reference), place)

    def components(self, root: Path) -> dict[str, Any]:
        """Those of all files, by kind. No two files have one of the same name."""
        whole: dict[str, dict[str, Any]] = {}
        homes: dict[tuple[str, str], Path] = {}
        done: set[Path] = set()
        # What is moved may lead to a file that was not loaded before.
        while waiting := [path for path in self._loaded if path not in done]:
            done.add(waiting[0])
            kinds = self.moved(self.load(waiting[0]).get("components") or {}, waiting[0])
            for kind, named in kinds.items():
                for name in named:
                    other = homes.setdefault((kind, name), waiting[0])
                    if other != waiting[0]:
                        places = " and in ".join(
                            str(one.relative_to(root.parent)) for one in (other, waiting[0])
                        )
                        raise DocumentInvalid(f"components/{kind}/{name} is in {places}")
                whole.setdefault(kind, {}).update(named)
        return whole

    def _at(self, file: str, home: Path, reference: str) -> Path:
        place = (home.parent / unquote(file)).resolve() if file else home
        if place not in self._loaded and not place.is_file():
            raise DocumentInvalid(f"reference {reference!r} in {home.name} leads to no file")
        self.load(place)
        return place


def target(root: Any, pointer: str, reference: str | None = None) -> Any:
    """What a reference leads to: a JSON pointer behind `#`. Raises DocumentInvalid for nothing."""
    node = root
    for part in pointer[1:].split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(key)] if isinstance(node, list) else node[key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise DocumentInvalid(f"reference {reference or pointer!r} does not exist") from None
    return node


def load(path: Path) -> dict[str, Any]:
    """One file, as JSON would have it. Raises DocumentInvalid."""
    loaded = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - _Loader is safe
    if not isinstance(loaded, dict):
        raise DocumentInvalid(f"{path} does not contain a mapping")
    plain: dict[str, Any] = with_string_keys(loaded)
    return plain


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # C or Python
    """YAML as OpenAPI means it: timestamps stay text, and only true and false are booleans."""


def _plain_resolvers(loader: Any) -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    unwanted = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool")
    return {
        first: [(tag, pattern) for tag, pattern in rules if tag not in unwanted]
        for first, rules in loader.yaml_implicit_resolvers.items()
    }


_Loader.yaml_implicit_resolvers = _plain_resolvers(_Loader)
_Loader.add_implicit_resolver(
    # To its end: a text may begin so.
    "tag:yaml.org,2002:bool",
    re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"),
    list("tTfF"),
)


def with_string_keys(node: Any) -> Any:
    """As JSON has them: YAML reads the key of a response, unquoted, as a number."""
    if isinstance(node, Mapping):
        return {str(key): with_string_keys(value) for key, value in node.items()}
    return [with_string_keys(item) for item in node] if isinstance(node, list) else node
