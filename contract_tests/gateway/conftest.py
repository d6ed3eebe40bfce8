"""Gateways for tests: one that a module shares, and makers of special ones."""

from collections.abc import Callable, Iterator

import pytest

from contract_tests.gateway.door import Door, has_ipv6

MakeDoor = Callable[..., Door]


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    """Instances are added by the tests under names of their own."""
    listen = "127.0.0.1,::1" if has_ipv6() else "127.0.0.1"
    made = Door(listen=listen)
    yield made
    made.close()


@pytest.fixture(scope="module")
def hasty_door() -> Iterator[Door]:
    """For clients that take their time; too strict for honest ones on a busy machine."""
    made = Door(handshake_timeout_s=2.0, first_request_timeout_s=2.0)
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
