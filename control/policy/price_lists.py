"""Reading price lists (TOML): all that is wrong with one is told at once, by where it stands."""

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from control.policy.months import hour_of
from control.policy.plans import PLANS
from control.policy.prices import BEGINNING, MICRO_CENTS, PriceBook, PriceList, Rates
from control.policy.sizes import OTHER_SIZES, SIZES

PACKAGED: Final = Path(__file__).with_name("list_prices.toml")
_CENTS_MAX: Final = 10**12
_PERCENT_MAX: Final = 10_000
_EACH_SIZE: Final = (*SIZES, *(size.name for size in OTHER_SIZES))
_OF_REGION: Final = ("storage_gb_month", "backup_gb_month", "egress_gb", "domain_month")
_AMOUNTS: Final = (*_OF_REGION, "seat_month")
_MEMBERS: Final = frozenset({*_AMOUNTS, "from", "plans", "sizes", "regions", "unmetered_plans"})
_CURRENCY: Final = re.compile("[A-Z]{3}")
_REGION: Final = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
Table = Mapping[str, Any]


class PriceListInvalid(ValueError):  # noqa: N818 -- a fact about a file
    """The message names each place in the file, and what is allowed there."""


@functools.cache
def packaged() -> PriceBook:
    """The list prices that the service comes with."""
    return read(PACKAGED.read_text(encoding="utf-8"))


@functools.cache
def free() -> PriceBook:
    """Of an installation that has switched money off."""
    rates = Rates(dict.fromkeys(_EACH_SIZE, 0), 0, 0, 0, 0)
    nothing = PriceList(BEGINNING, rates, dict.fromkeys(PLANS, 0), 0)
    return PriceBook(packaged().currency, (nothing,), is_on=False)


def read(text: str) -> PriceBook:
    """Raises PriceListInvalid."""
    try:
        told = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise PriceListInvalid(f"it is not TOML: {error}") from None
    reader = _Reader()
    book = reader.book(told)
    if reader.wrong or book is None:
        raise PriceListInvalid("; ".join(reader.wrong))
    return book


class _Reader:
    """Goes on where something is wrong, to find what else is."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def book(self, told: Table) -> PriceBook | None:
        self._check_members("", told, ("currency", "prices"))
        currency = told.get("currency")
        if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
            self._refuse("currency", "must be three capital letters such as USD")
        lists = told.get("prices")
        if not isinstance(lists, list) or not lists or not all(isinstance(x, dict) for x in lists):
            self._refuse("prices", "must be one or more tables, each headed [[prices]]")
            return None
        found: list[PriceList] = []
        for number, one in enumerate(lists, 1):
            found.append(self._list(f"prices {number}", one, found[-1] if found else None))
        return PriceBook(str(currency), tuple(found))

    def _list(self, at: str, told: Table, before: PriceList | None) -> PriceList:
        self._check_members(at, told, _MEMBERS)
        amounts = {
            name: self._amount(at, told, name, None if before is None else _known(before, name))
            for name in _AMOUNTS
        }
        sizes = self._each(
            at, told, "sizes", _EACH_SIZE, None if before is None else before.rates.sizes
        )
        rates = Rates(sizes, **{name: amounts[name] for name in _OF_REGION})
        return PriceList(
            since=self._since(at, told, before),
            rates=rates,
            plans=self._each(at, told, "plans", PLANS, None if before is None else before.plans),
            seat_month=amounts["seat_month"],
            unmetered_plans=self._unmetered(at, told, before),
            regions=self._regions(at, told, rates, before),
        )

    def _since(self, at: str, told: Table, before: PriceList | None) -> datetime:
        given = told.get("from")
        if before is None:
            if given is not None:
                self._refuse(f"{at}.from", "must be left out: the first list is for all before")
            return BEGINNING
        if not isinstance(given, datetime) or given.tzinfo is None or hour_of(given) != given:
            self._refuse(f"{at}.from", "must be a full hour with its zone: 2027-01-01T00:00:00Z")
            return before.since
        if given <= before.since:
            shown = before.since.isoformat()
            self._refuse(f"{at}.from", f"must be later than that of the list before it ({shown})")
        return given.astimezone(UTC)

    def _unmetered(self, at: str, told: Table, before: PriceList | None) -> frozenset[str]:
        given = told.get("unmetered_plans")
        if given is None:
            return frozenset() if before is None else before.unmetered_plans
        if not isinstance(given, list) or not all(each in PLANS for each in given):
            self._refuse(f"{at}.unmetered_plans", f"must be a list of {', '.join(PLANS)}")
            return frozenset()
        return frozenset(given)

    def _regions(
        self, at: str, told: Table, rates: Rates, before: PriceList | None
    ) -> dict[str, Rates]:
        """All regions that differ; where none are named, those of the list before."""
        if "regions" not in told:
            return self._kept_regions(at, told, before)
        given = told["regions"]
        if not isinstance(given, dict):
            self._refuse(f"{at}.regions", "must be tables such as [prices.regions.eu-west]")
            return {}
        return {
            name: self._region(f"{at}.regions.{name}", name, one, rates)
            for name, one in given.items()
        }

    def _kept_regions(self, at: str, told: Table, before: PriceList | None) -> dict[str, Rates]:
        if before is None or not before.regions:
            return {}
        if changed := sorted(told.keys() & {*_OF_REGION, "sizes"}):
            self._refuse(
                f"{at}.regions",
                f"must be given anew, as {', '.join(changed)} changes; `regions = {{}}` for none",
            )
        return dict(before.regions)

    def _region(self, at: str, name: str, told: Any, rates: Rates) -> Rates:
        if not _REGION.fullmatch(name) or not isinstance(told, dict):
            self._refuse(at, "must be a table named like a region: letters, digits and hyphens")
            return rates
        self._check_members(at, told, {*_OF_REGION, "percent", "sizes"})
        percent = told.get("percent", 100)
        if (
            not isinstance(percent, int)
            or isinstance(percent, bool)
            or not 0 <= percent <= _PERCENT_MAX
        ):
            self._refuse(f"{at}.percent", f"must be a whole number from 0 to {_PERCENT_MAX:,}")
            percent = 100
        dearer = _times(rates, percent)
        own = {key: self._amount(at, told, key, getattr(dearer, key)) for key in _OF_REGION}
        sizes = self._each(at, told, "sizes", _EACH_SIZE, dearer.sizes)
        return replace(dearer, sizes=sizes, **own)

    def _each(
        self, at: str, told: Table, name: str, keys: Iterable[str], known: Mapping[str, int] | None
    ) -> dict[str, int]:
        given, known = told.get(name, {}), known or {}
        if not isinstance(given, dict):
            self._refuse(f"{at}.{name}", "must be a table of amounts")
            return dict.fromkeys(keys, 0)
        self._check_members(f"{at}.{name}", given, keys)
        return {key: self._amount(f"{at}.{name}", given, key, known.get(key)) for key in keys}

    def _amount(self, at: str, told: Table, name: str, known: int | None) -> int:
        """In micro-cents; `known` is what holds where it is left out."""
        given = told.get(name)
        if given is None:
            if known is None:
                self._refuse(f"{at}.{name}", "is missing: an amount in cents")
            return known or 0
        is_number = isinstance(given, int | Decimal) and not isinstance(given, bool)
        exact = Decimal(given) * MICRO_CENTS if is_number and Decimal(given).is_finite() else None
        if exact is None or not 0 <= exact <= _CENTS_MAX * MICRO_CENTS or exact != int(exact):
            allowed = f"an amount in cents from 0 to {_CENTS_MAX:,}, with at most six decimals"
            self._refuse(f"{at}.{name}", f"must be {allowed}")
            return known or 0
        return int(exact)

    def _check_members(self, at: str, told: Table, allowed: Iterable[str]) -> None:
        names = list(allowed)
        for name in told:
            if name not in names:
                where = f"{at}.{name}" if at else name
                self._refuse(where, f"is not known; allowed are {', '.join(sorted(names))}")

    def _refuse(self, where: str, message: str) -> None:
        self.wrong.append(f"{where}: {message}")


def _known(before: PriceList, name: str) -> int:
    found: int = getattr(before if name == "seat_month" else before.rates, name)
    return found


def _times(rates: Rates, percent: int) -> Rates:
    """Each price so many percent of what it is, rounded down to a micro-cent."""
    own = {name: getattr(rates, name) * percent // 100 for name in _OF_REGION}
    return Rates({key: each * percent // 100 for key, each in rates.sizes.items()}, **own)
