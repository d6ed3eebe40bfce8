"""A plugin for pytest where tests judge mutants: the same examples each time, no false verdict."""

import functools
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

import openapi_spec_validator
import pytest
from hypothesis import settings

_NO_VERDICT: Final = 35
"""mutmut's "suspicious"."""


# The tests that reach what is changed, by the order in which they are tried: the fastest first.
_wanted: dict[str, int] = {}


@functools.cache
def _durations() -> dict[str, float]:
    """Of each test, without mutants; none before they are known."""
    told = Path("mutmut-stats.json")
    return dict(json.loads(told.read_text())["duration_by_test"]) if told.exists() else {}


def pytest_configure(config: pytest.Config) -> None:
    # What survives must not depend on chance.
    settings.register_profile("judging", settings.default, derandomize=True)
    settings.load_profile("judging")
    # The document is as it was, and to hold it to OpenAPI takes half of the time of many a test.
    openapi_spec_validator.validate = lambda *_, **__: None
    durations = _durations()
    # Pytest finds no test by an identifier such as "test_it[a::b]": it is looked for in its file.
    if config.args and all("::" in each for each in config.args):
        _wanted.clear()
        fastest = sorted(config.args, key=lambda each: durations.get(each, 0))
        _wanted.update({each: place for place, each in enumerate(fastest)})
        config.args[:] = dict.fromkeys(each.partition("::")[0] for each in config.args)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """What needs a server is no judge, nor is what does not reach what is changed."""
    yield
    judges = [item for item in items if not _is_of_other_databases(item)]
    if _wanted:
        judges = [item for item in judges if item.nodeid in _wanted]
        judges.sort(key=lambda item: _wanted[item.nodeid])
    kept = {*judges}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = judges


def _is_of_other_databases(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and not {"postgresql", "redis"}.isdisjoint(
        map(str, call.params.values())
    )


def pytest_sessionfinish(exitstatus: int) -> None:
    """A test that is not found kills nothing, though mutmut would take it for that."""
    judges = "__mutmut_" in os.environ.get("MUTANT_UNDER_TEST", "")
    if judges and exitstatus in {pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERRUPTED}:
        os._exit(_NO_VERDICT)
