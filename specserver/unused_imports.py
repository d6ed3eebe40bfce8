"""Owns the imports that a library makes at its start and that nothing here ever uses."""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _Unused(ModuleType):
    """Every name can be imported from it, and nothing that is imported can be used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*_: object, **__: object) -> None:
            raise NotImplementedError(f"{self.__name__}.{name} was left out when it was imported")

        return refuse


@contextmanager
def without(unused: Collection[str], absent: Collection[str] = ()) -> Iterator[None]:
    """Meanwhile, these modules are not loaded, unless they were before; `absent` cannot be found.

    Who imports them later gets them as ever.
    """
    placed: dict[str, ModuleType | None] = {
        **{name: _Unused(name) for name in unused},
        **dict.fromkeys(absent),
    }
    placed = {name: placed[name] for name in placed.keys() - sys.modules.keys()}
    sys.modules.update(placed)  # type: ignore[arg-type]  # None says that there is none
    try:
        yield
    finally:
        for name in placed:
            sys.modules.pop(name, None)
