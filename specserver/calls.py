"""Owns the handler's side of binding: which arguments a handler takes, found out at start-up."""

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

# What a handler may name beside what the document gives; the document's own names come first.
_SPECIAL = frozenset({"exchange", "request"})


class HandlerMismatchError(TypeError):
    """A handler asks for an argument that the document does not give."""


class Taken(NamedTuple):
    """The arguments passed by name: the handler's spelling beside the bound name."""

    pairs: list[tuple[str, str]]
    # Named without a default, so they are None where an optional argument was not sent.
    wanted: list[str]
    specials: list[str]


class HandlerCall:
    """How a handler is called once the boundary has put its own arguments first.

    Made from the handler's signature alone, so that handlers of one signature share one.
    """

    __slots__ = ("_given", "_parameters", "_taken")

    def __init__(self, parameters: Sequence[inspect.Parameter], given: frozenset[str]) -> None:
        self._parameters = parameters
        self._given = given
        self._taken: dict[int, Taken] = {}

    def unknown(self) -> list[str]:
        """The arguments it cannot do without and that the document does not give."""
        return [p.name for p in self._parameters if self._is_unknown(p)]

    def positional(self) -> list[str]:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return [p.name for p in self._parameters if p.kind in kinds]

    def _is_unknown(self, parameter: inspect.Parameter) -> bool:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return False
        known = self._bound_name(parameter.name) or parameter.name in _SPECIAL
        return not known and parameter.default is parameter.empty

    def _bound_name(self, name: str) -> str | None:
        """A handler may write `from_` for an argument that is called `from`."""
        if name in self._given:
            return name
        return name.removesuffix("_") if name.removesuffix("_") in self._given else None

    def _take(self, leading: int) -> Taken:
        """What is passed by name when the first `leading` arguments are passed by place."""
        taken = Taken([], [], [])
        placed = set(self.positional()[:leading])
        for parameter in self._parameters:
            bound = self._bound_name(parameter.name)
            if parameter.kind is parameter.VAR_KEYWORD:
                named = {bound for _, bound in taken.pairs} | placed
                taken.pairs.extend((name, name) for name in sorted(self._given - named))
            elif parameter.kind is parameter.VAR_POSITIONAL or parameter.name in placed:
                continue
            elif bound is not None:
                taken.pairs.append((parameter.name, bound))
                if parameter.default is parameter.empty:
                    taken.wanted.append(parameter.name)
            elif parameter.name in _SPECIAL:
                taken.specials.append(parameter.name)
        return taken

    def arguments(self, bound: dict[str, Any], exchange: Any, leading: int = 0) -> dict[str, Any]:
        taken = self._taken.get(leading)
        if taken is None:
            taken = self._taken[leading] = self._take(leading)
        chosen = {name: bound[key] for name, key in taken.pairs if key in bound}
        if len(chosen) < len(taken.pairs):
            for name in taken.wanted:
                chosen.setdefault(name, None)
        for name in taken.specials:
            chosen[name] = exchange if name == "exchange" else exchange.request
        return chosen


_shared = lru_cache(maxsize=4096)(HandlerCall)


def call_of(
    operation_id: str, handler: Callable[..., Any], given: set[str], *, leading: int | None
) -> HandlerCall:
    """How to call the handler, which a boundary passes `leading` arguments of its own first.

    None: as many as the handler has that the document does not give.
    """
    parameters = [
        parameter.replace(
            annotation=parameter.empty,
            default=parameter.default if parameter.default is parameter.empty else None,
        )
        for parameter in inspect.signature(handler).parameters.values()
    ]
    call = _shared(tuple(parameters), frozenset(given))
    unknown = call.unknown()
    placed = call.positional()[: len(unknown) if leading is None else leading]
    if not set(unknown) <= set(placed):
        raise HandlerMismatchError(
            f"the handler of {operation_id} asks for {', '.join(unknown)}, and the document "
            f"gives {', '.join(sorted(given)) or 'nothing'}"
        )
    return call
