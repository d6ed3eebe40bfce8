"""Owns the document: completing it, holding it to OpenAPI 3.1, and following its references."""

import copy
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from specserver.connexion_seam import OpenAPISpecification
from specserver.public import public
from specserver.standard import METHODS, complete
from specserver.validation import Schemas
from specserver.written import DocumentInvalid, read, target, with_string_keys

__all__ = ["METHODS", "Document", "DocumentInvalid", "References"]


class Document(OpenAPISpecification):  # type: ignore[misc]  # connexion is untyped
    """Connexion's specification, for OpenAPI 3.1.

    Connexion loads 3.0 only, and follows references by copying, which never ends on a schema that
    holds itself. Here `raw` keeps its references, for validators and for serving; `spec` has them
    followed, and a reference that leads back into itself is left as it is. Both have the standard
    answers that the document as it is `written` leaves to its table.
    """

    def __init__(
        self, raw_spec: dict[str, Any], *, base_uri: str = "", checked: bool = False
    ) -> None:
        self.written: dict[str, Any] = copy.deepcopy(raw_spec)
        self._raw_spec = complete(self.written)
        if not checked:
            self._validate_spec(self._raw_spec)
        self._spec = References(self._raw_spec).follow(self._raw_spec)
        self._set_defaults(self._spec)
        self._base_uri = base_uri
        self._public: dict[frozenset[str], dict[str, Any]] = {}

    @classmethod
    def _validate_spec(cls, spec: dict[str, Any]) -> None:
        version = str(spec.get("openapi"))
        if not re.fullmatch(r"3\.1\.\d+", version):
            raise DocumentInvalid(f"the document is OpenAPI {version}; 3.1 is served")
        # Half a second to load and to use, which a document checked before need not cost.
        import openapi_spec_validator  # noqa: PLC0415
        from openapi_spec_validator.validation.exceptions import (  # noqa: PLC0415
            OpenAPIValidationError,
        )

        try:
            openapi_spec_validator.validate(spec)
        except OpenAPIValidationError as error:
            place = "/".join(str(part) for part in getattr(error, "absolute_path", ())) or "root"
            message = str(getattr(error, "message", error))
            raise DocumentInvalid(f"the document is invalid at {place}: {message}") from error

    @classmethod
    def load(
        cls,
        spec: "Document | Path | str | dict[str, Any]",
        *,
        checked: bool = False,
        **_templates: Any,
    ) -> "Document":
        """Reads YAML or JSON, as it is: Connexion would render it as a template first.

        One that was `checked` before is not held to OpenAPI again, one that was loaded stays.
        """
        if isinstance(spec, Document):
            return spec
        plain = read(Path(spec)) if isinstance(spec, (str, Path)) else with_string_keys(spec)
        return cls(plain, checked=checked)

    def operations(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Path template, method in upper case, and operation object with its references followed.

        Parameters of the path item are among the operation's; security is the document's where
        the operation has none of its own.
        """
        for path, item in (self._spec.get("paths") or {}).items():
            for method in METHODS:
                if method in item:
                    yield path, method.upper(), self._operation(item, method)

    def _operation(self, item: dict[str, Any], method: str) -> dict[str, Any]:
        operation: dict[str, Any] = dict(item[method])
        parameters = {(p["in"], p["name"]): p for p in item.get("parameters", ())}
        parameters |= {(p["in"], p["name"]): p for p in operation.get("parameters", ())}
        operation["parameters"] = list(parameters.values())
        operation["security"] = operation.get("security", self._spec.get("security") or [])
        return operation

    @cached_property
    def schemas(self) -> Schemas:
        """Those of the document, each compiled once, whatever serves or reads it."""
        return Schemas(self.raw)

    def public(self, extensions: Iterable[str]) -> dict[str, Any]:
        """As strangers may read it, with only these x- fields. Shared: treat as read-only."""
        kept = frozenset(extensions)
        if kept not in self._public:
            self._public[kept] = public(self.raw, kept)
        return self._public[kept]

    @property
    def has_security(self) -> bool:
        return any(
            any(requirement for requirement in operation["security"])
            for _, _, operation in self.operations()
        )


class References:
    """Follows `$ref` inside one document. Subtrees are shared, not copied: treat as read-only."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._done: dict[str, Any] = {}
        self._open: list[str] = []

    def target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            raise DocumentInvalid(f"reference {reference!r} points outside the document")
        return target(self._root, reference)

    def follow(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.follow(item) for item in node]
        if not isinstance(node, dict):
            return node
        reference = node.get("$ref")
        if not isinstance(reference, str):
            return {key: self.follow(value) for key, value in node.items()}
        if reference in self._open:
            return node
        if reference not in self._done:
            self._open.append(reference)
            followed = self.follow(self.target(reference))
            self._open.pop()
            if self._open:
                # It may hold references left open because of where we came from.
                return self._with_siblings(node, followed)
            self._done[reference] = followed
        return self._with_siblings(node, self._done[reference])

    def _with_siblings(self, node: dict[str, Any], followed: Any) -> Any:
        siblings = {key: self.follow(value) for key, value in node.items() if key != "$ref"}
        return {**followed, **siblings} if siblings and isinstance(followed, dict) else followed
