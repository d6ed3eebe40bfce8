"""Gateways for tests: one that a module shares, and makers of special ones."""

from collections.abc import Callable, Iterator

import pytest

from contract_tests.gateway.door import Door, has_ipv6

MakeDoor = Callable[..., Door]


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    """With short timeouts; instances are added by the tests under names of their own."""
    listen = "127.0.0.1,::1" if has_ipv6() else "127.0.0.1"
    made = Door(
        listen=listen,
        handshake_timeout_s=3.0,
        first_request_timeout_s=3.0,
        wake_hold_s=20.0,
        backend_retry_s=1.0,
        half_closed_timeout_s=20.0,
    )
    yield made
    made.close()


@pytest.fixture
def make_door() -> Iterator[MakeDoor]:
    made: list[Door] = []

    def make(**options: object) -> Door:
        made.append(Door(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()
