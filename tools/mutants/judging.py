"""A plugin for pytest where tests judge mutants: the same examples each time, by those that can."""

from collections.abc import Generator

import openapi_spec_validator
import pytest
from hypothesis import settings


def pytest_configure() -> None:
    # What survives must not depend on chance.
    settings.register_profile("judging", settings.default, derandomize=True)
    settings.load_profile("judging")
    # The document is as it was, and to hold it to OpenAPI takes half of the time of many a test.
    openapi_spec_validator.validate = lambda *_, **__: None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """What needs a server is no judge."""
    yield
    judges = [item for item in items if not _is_of_other_databases(item)]
    kept = {*judges}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = judges


def _is_of_other_databases(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and not {"postgresql", "redis"}.isdisjoint(
        map(str, call.params.values())
    )
