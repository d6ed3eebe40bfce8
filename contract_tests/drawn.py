"""A few requests for an operation of a document, drawn when its test runs.

What `schema.parametrize()` makes of a document it makes while tests are collected, hundreds of
requests for each operation, and in each worker: that is for the night.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode


def operations(schema: Any) -> list[Any]:
    """Of a schema, or of what `include` and `exclude` leave of it, each for one test."""
    return [each.ok() for each in schema.get_all_operations()]


def name_of(operation: Any) -> str:
    return str(operation.definition.raw["operationId"])


def ask_a_few(operation: Any, ask: Callable[[Any], None], examples: int = 2) -> None:
    """As many right requests, and as many wrong ones, the same on every run."""
    ask_some(operation.as_strategy(generation_mode=GenerationMode.POSITIVE), ask, examples)
    # What has nothing that could be wrong has no wrong requests.
    with contextlib.suppress(Unsatisfiable):
        ask_some(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE), ask, examples)


def ask_some(strategy: Any, ask: Callable[[Any], None], examples: int) -> None:
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def check(case: Any) -> None:
        ask(case)

    check()
