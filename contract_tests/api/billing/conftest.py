"""Owns what tests of invoices share: a house of their own, in which a month can end."""

import pytest

from contract_tests import invoicing
from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import House
from control.policy.months import Month


@pytest.fixture
def own_house(make_house: MakeHouse) -> House:
    """Whose clock is moved on by a month."""
    return make_house()


@pytest.fixture
def month(own_house: House) -> Month:
    """The first that is invoiced."""
    return invoicing.starts_billing(own_house)
