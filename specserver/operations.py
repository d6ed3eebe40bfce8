"""Owns Operation, one method of one path of the document, and the way to its handler."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from specserver.connexion_seam import RelativeResolver, ResolverError
from specserver.document import DocumentInvalid


class Operation:
    """What the document says of an operation. `document` has its references followed."""

    def __init__(
        self,
        path: str,
        method: str,
        document: dict[str, Any],
        security_schemes: dict[str, Any] | None = None,
    ) -> None:
        if "operationId" not in document:
            raise DocumentInvalid(f"{method} {path} has no operationId")
        self.id: str = document["operationId"]
        self.path = path
        self.method = method
        self.document = document
        self.security: list[dict[str, list[str]]] = document["security"]
        self.security_schemes = security_schemes or {}

    def __repr__(self) -> str:
        return f"<Operation {self.id}: {self.method} {self.path}>"

    @cached_property
    def tag(self) -> str:
        """The first tag, or the part of the id before its last dot where there is none."""
        tags = self.document.get("tags") or [self.id.rpartition(".")[0]]
        return str(tags[0])

    def extension(self, name: str, default: Any = None) -> Any:
        """The value of `x-<name>`; give the name without its `x-`."""
        return self.document.get("x-" + name, default)

    # Connexion's resolvers ask an operation for these two.

    @property
    def operation_id(self) -> str:
        return self.id

    @property
    def router_controller(self) -> str | None:
        controller: str | None = self.extension("openapi-router-controller")
        return controller


class HandlerResolver(RelativeResolver):  # type: ignore[misc]  # connexion is untyped
    """Connexion's resolver relative to a package, which also finds `list_` where `list` is asked.

    In Python `list` would hide the builtin, and `from` is no name at all, so `name` is tried
    before `name_`. Hyphens in an operationId are underscores in Python.
    """

    def resolve_function_from_operation_id(self, operation_id: str) -> Callable[..., Any]:
        try:
            return self._resolve(operation_id)
        except ResolverError as first:
            try:
                return self._resolve(operation_id + "_")
            except ResolverError:
                raise first from None

    def _resolve(self, operation_id: str) -> Callable[..., Any]:
        name = operation_id.replace("-", "_")
        function: Callable[..., Any] = super().resolve_function_from_operation_id(name)
        if not callable(function):
            raise ResolverError(f'operationId "{operation_id}" names no function')
        return function
