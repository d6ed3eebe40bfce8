"""Fixtures every room's tests share: databases of both dialects, and how hard Hypothesis tries."""

import gc
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from schemathesis.pytest.plugin import SchemathesisCase

sys.path.insert(0, str(Path(__file__).parent.parent))

from contract_tests import compiled_once as compiled_once  # noqa: PLC0414 -- listens
from contract_tests import folders
from contract_tests.by_day import is_left_to_the_night, take_turns
from contract_tests.databases import DIALECTS, Databases
from contract_tests.engine_logs import pytest_report_engine_logs as pytest_report_engine_logs  # noqa: PLC0414 -- a hook
from contract_tests.order import in_order
from contract_tests.skips import pytest_runtest_makereport as pytest_runtest_makereport  # noqa: PLC0414 -- a hook
from contract_tests.stuck import pytest_exception_interact as pytest_exception_interact  # noqa: PLC0414 -- a hook
from contract_tests.together import (
    pytest_xdist_make_scheduler as pytest_xdist_make_scheduler,  # noqa: PLC0414 -- a hook
)
from storage.database import Database

# The tests start a thousand processes. Where nobody may write byte code, each of them compiles
# everything anew, which takes three times as long as what it is started for.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A package of the development tools lets gunicorn write its name over its environment, by which the
# tests find the processes of an installation.
os.environ["SPT_NOENV"] = "1"
# What is collected stays to the end, and to look for garbage among it takes a sixth of the time.
gc.disable()

_SLOW_MACHINES = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
# Deadlines measure the machine and not the code, so there are none.
for name, examples in (("test", 25), ("nightly", 100)):
    settings.register_profile(
        name,
        deadline=None,
        max_examples=examples,
        suppress_health_check=_SLOW_MACHINES,
        database=None,
    )
settings.load_profile("test")
# The watchdog's, for what is left to the night because it is long.
_NIGHTLY_S = 3600


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, obj: object
) -> Generator[None, object, object]:
    """By day Schemathesis does not make its nightly tests, which takes each worker seconds."""
    made = yield
    if isinstance(made, SchemathesisCase) and "not nightly" in collector.config.option.markexpr:
        marks = {mark.name for mark in getattr(obj, "pytestmark", ())}
        return [] if "nightly" in marks else made
    return made


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    by_day = "not nightly" in config.option.markexpr
    return True if by_day and is_left_to_the_night(collection_path) else None


def pytest_configure(config: pytest.Config) -> None:
    if "not nightly" not in config.option.markexpr:
        settings.load_profile("nightly")
    _begin_apart(config)
    # What a conftest has is not asked about the fixtures of the session.
    config.pluginmanager.register(folders)


# Before a room's own, which give their tests what they need by day.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path)
    _name_apart(items)
    take_turns(items)
    for item in items:
        if item.get_closest_marker("nightly") and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_NIGHTLY_S))


def _begin_apart(config: pytest.Config) -> None:
    """Each worker begins to collect elsewhere, and finds compiled what the others began with.

    In a new checkout each of them would compile each file, as all come to it at once.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    number = int(worker["workerid"].removeprefix("gw"))
    first = len(config.args) * number // int(worker["workercount"])
    config.args[:] = [*config.args[first:], *config.args[:first]]


def _name_apart(items: list[pytest.Item]) -> None:
    """Number what has the name of another: Schemathesis gives all operations of a test the same.

    Of those with one name, whoever hands out whole files to workers would have only one run.
    """
    counts = Counter[str]()
    for item in items:
        counts[item.nodeid] += 1
        if counts[item.nodeid] > 1:
            item._id = item.id.with_params(str(counts[item.nodeid]))


# After pytest's own, which brings together what shares a parameter: that is shared anyway.
@pytest.hookimpl(trylast=True, specname="pytest_collection_modifyitems")
def pytest_order(items: list[pytest.Item]) -> None:
    in_order(items)


def pytest_collection_finish() -> None:
    gc.freeze()
    # Looking for garbage as often as by default takes a twentieth of all.
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


def pytest_sessionfinish() -> None:
    # Pytest looks through all that is left ten times, which takes seconds.
    gc.freeze()


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    made = Databases()
    yield made
    made.close()


@pytest.fixture(params=DIALECTS)
def database_url(request: pytest.FixtureRequest, databases: Databases) -> Iterator[str]:
    """A new database at the newest revision, once on SQLite and once on PostgreSQL."""
    url = databases.migrated(str(request.param))
    yield url
    databases.give_back(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    made = Database(database_url)
    yield made
    made.dispose()
