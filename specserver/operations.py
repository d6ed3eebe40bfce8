"""Owns Operation, one method of one path of the document, and the way to its handler."""

import contextlib
import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
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
    before `name_`. Hyphens in an operationId are underscores in Python. The module may be in the
    package or in a folder of it, but only in one of them.
    """

    def __init__(self, package: Any) -> None:
        super().__init__(package)
        self._modules = _modules_of(self.root_path)

    def resolve_operation_id(self, operation: Operation) -> str:
        module, _, function = operation.id.replace("-", "_").rpartition(".")
        found = self._modules.get(module, [])
        if len(found) > 1:
            raise ResolverError(
                f'operationId "{operation.id}" could be of {" or of ".join(sorted(found))}: name'
                " one of the modules otherwise"
            )
        if found and operation.router_controller is None:
            return f"{found[0]}.{function}"
        asked: str = super().resolve_operation_id(operation)
        return asked

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


def _modules_of(package: str) -> dict[str, list[str]]:
    """The dotted names of modules in a package and its folders, by their last part."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    places: list[str] = []
    # What cannot be imported is told of by the first operation that asks for it.
    with contextlib.suppress(ImportError):
        places = [*getattr(importlib.import_module(package), "__path__", ())]
    for outer in pkgutil.iter_modules(places):
        if not outer.ispkg:
            found[outer.name].append(f"{package}.{outer.name}")
            continue
        for inner in pkgutil.iter_modules([str(Path(place) / outer.name) for place in places]):
            found[inner.name].append(f"{package}.{outer.name}.{inner.name}")
    return dict(found)
