"""Tests that never end: pytest watches them no more once they have failed, and this does."""

import faulthandler

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key, get_timeout_config_value


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Its fixtures may wait for ever after it. Then all stacks are printed, and the worker ends.

    Pytest stops its own watch here, for debuggers that one types into; it ends this one after the
    fixtures.
    """
    after_s = get_timeout_config_value(node.config)
    if after_s > 0 and isinstance(node, pytest.Item):
        descriptor = node.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(after_s, exit=True, file=descriptor)
