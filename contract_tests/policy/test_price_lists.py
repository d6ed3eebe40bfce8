"""Price lists: read whole or refused with all that is wrong, and cut where each holds."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policy.plans import PLANS
from control.policy.price_lists import PACKAGED, PriceListInvalid, free, packaged, read
from control.policy.prices import MICRO_CENTS, PriceBook, amount, nearest_cents
from control.policy.sizes import GB, OTHER_SIZES, SIZES

WHOLE = PACKAGED.read_text("utf-8")
NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)


def later(text: str) -> PriceBook:
    return read(f"{WHOLE}\n[[prices]]\nfrom = 2027-01-01T00:00:00Z\n{text}")


def refused(text: str) -> str:
    with pytest.raises(PriceListInvalid) as refusal:
        read(text)
    return str(refusal.value)


def test_the_list_that_comes_with_the_service_has_everything() -> None:
    (prices,) = packaged().lists
    assert set(prices.rates.sizes) == {*SIZES, *(size.name for size in OTHER_SIZES)}
    assert set(prices.plans) == set(PLANS)
    assert (packaged().currency, packaged().is_on, free().is_on) == ("USD", True, False)
    whole = prices.rates.instance_month("m2", 60 * GB)
    assert whole == (11_000 + 120) * MICRO_CENTS


def test_a_later_list_has_only_what_changes() -> None:
    book = later("egress_gb = 0.000001\n[prices.sizes]\ns0 = 999.5\n")
    before, after = book.lists
    assert after.rates.egress_gb == 1
    assert after.rates.sizes["s0"] == 999_500_000
    assert after.rates.sizes["s1"] == before.rates.sizes["s1"]
    assert (after.plans, after.unmetered_plans) == (before.plans, before.unmetered_plans)
    assert book.at(NEW_YEAR - timedelta(microseconds=1)) is before
    assert book.at(NEW_YEAR) is after


def test_a_region_is_dearer_or_has_prices_of_its_own() -> None:
    book = later("[prices.regions.eu]\npercent = 110\nstorage_gb_month = 5\nsizes = {s1 = 7}\n")
    rates = book.at(NEW_YEAR).in_region("eu")
    assert rates.sizes["s0"] == 1_100 * MICRO_CENTS
    assert rates.sizes["s1"] == 7 * MICRO_CENTS
    assert rates.storage_gb_month == 5 * MICRO_CENTS
    assert book.at(NEW_YEAR).in_region("us") == book.at(NEW_YEAR).rates
    assert book.lists[0].in_region("eu") == book.lists[0].rates


def test_a_list_that_changes_what_regions_have_names_them_anew() -> None:
    region = "[prices.regions.eu]\npercent = 110\n"
    following = "[[prices]]\nfrom = 2027-02-01T00:00:00Z\n"
    kept = later(f"{region}{following}seat_month = 1\n").lists[-1]
    assert kept.in_region("eu").sizes["s0"] == 1_100 * MICRO_CENTS
    none = later(f"{region}{following}egress_gb = 2\nregions = {{}}\n").lists[-1]
    assert none.in_region("eu") == none.rates
    with pytest.raises(PriceListInvalid, match=r"prices 3\.regions: must be given anew"):
        later(f"{region}{following}egress_gb = 2\n")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "currency: must be three capital letters"),
        ("= 1", "it is not TOML"),
        ('currency = "USD"\nprices = 1', "prices: must be one or more tables"),
        ('currency = "USD"\n[[prices]]', "prices 1.sizes.s0: is missing: an amount in cents"),
        (WHOLE + "[prices.size]\ns0 = 1\n", "prices 1.size: is not known; allowed are"),
        (WHOLE + "x1b = 6\n", "prices 1.sizes.x1b: is not known; allowed are"),
        (WHOLE.replace("egress_gb = 1", "egress_gb = -1"), "prices 1.egress_gb: must be an amount"),
        (
            WHOLE.replace("egress_gb = 1", "egress_gb = inf"),
            "prices 1.egress_gb: must be an amount",
        ),
        (
            WHOLE.replace("egress_gb = 1", "egress_gb = nan"),
            "prices 1.egress_gb: must be an amount",
        ),
        (WHOLE.replace("egress_gb = 1", "egress_gb = true"), "prices 1.egress_gb: must be an"),
        (WHOLE.replace("egress_gb = 1", "egress_gb = 1e999"), "prices 1.egress_gb: must be an"),
        (WHOLE.replace("egress_gb = 1", "egress_gb = 0.0000001"), "at most six decimals"),
        (WHOLE.replace("seat_month = 0", "seat_month = 0\nfrom = 2026-01-01"), "prices 1.from"),
        (WHOLE.replace('["free"]', '["gratis"]'), "prices 1.unmetered_plans: must be a list of"),
        (WHOLE + "[[prices]]\nfrom = 2027-01-01", "prices 2.from: must be a full hour"),
        (WHOLE + "[[prices]]\nfrom = 2027-01-01T00:00:00", "prices 2.from: must be a full hour"),
        (WHOLE + "[[prices]]\nfrom = 2027-01-01T00:30:00Z", "prices 2.from: must be a full hour"),
        (WHOLE + "[prices.regions.EU]\npercent = 1\n", "prices 1.regions.EU: must be a table"),
        (WHOLE + "[prices.regions.eu]\npercent = 1.5\n", "prices 1.regions.eu.percent: must be"),
    ],
)
def test_what_is_wrong_is_told_by_its_place(text: str, told: str) -> None:
    assert told in refused(text)


def test_lists_follow_each_other() -> None:
    one = "[[prices]]\nfrom = 2027-01-01T00:00:00Z\n"
    assert "prices 3.from: must be later than" in refused(WHOLE + one + one)


def test_all_that_is_wrong_is_told_at_once() -> None:
    told = refused(WHOLE.replace("egress_gb = 1", "egress_gb = -1") + "s9 = 1\n")
    assert "egress_gb" in told
    assert "s9" in told


HOURS = st.integers(-2_000, 2_000).map(lambda hours: NEW_YEAR + timedelta(hours=hours, seconds=7))


@given(HOURS, HOURS)
def test_a_time_is_cut_without_a_gap(since: datetime, until: datetime) -> None:
    book = later("[[prices]]\nfrom = 2027-01-02T05:00:00+02:00\n")
    found = list(book.cut(since, until))
    if since >= until:
        assert found == []
        return
    assert (found[0][0], found[-1][1]) == (since, until)
    assert [end for _, end, _ in found[:-1]] == [begin for begin, _, _ in found[1:]]
    assert all(book.at(begin) is prices for begin, _, prices in found)


def test_amounts_are_shown_to_the_nearest_cent() -> None:
    cents = [nearest_cents(each) for each in (0, 499_999, 500_000, 1_499_999, 10**12)]
    assert cents == [0, 0, 1, 1, 10**6]
    assert amount(101_500, "EUR") == "1,015.00 EUR"
