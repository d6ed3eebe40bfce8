"""Who issues invoices, and with which taxes: a file of the operator (TOML), read at the start."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

EU: Final = frozenset(
    {
        *("AT", "BE", "BG", "HR", "CY", "CZ", "DK", "EE", "FI", "FR", "DE", "GR", "HU", "IE"),
        *("IT", "LV", "LT", "LU", "MT", "NL", "PL", "PT", "RO", "SK", "SI", "ES", "SE"),
    }
)
_COUNTRY: Final = re.compile("[A-Z]{2}")
_VAT_ID: Final = re.compile("[A-Z]{2}[0-9A-Z]{2,13}")
_MONTH: Final = re.compile("[0-9]{4}-(0[1-9]|1[0-2])")
_PREFIX: Final = re.compile("[A-Z0-9]{1,10}")
_IBAN: Final = re.compile("[A-Z]{2}[0-9]{2}[0-9A-Z]{11,30}")
_PREFIXES: Final = {"number_prefix": "INV", "credit_note_prefix": "CN"}
_TEXT_MAX: Final = 200
_DUE_DAYS_MAX: Final = 365
_RATE_MAX: Final = 100
_PARTY: Final = ("name", "street", "postcode", "city", "country", "vat_id", "email")
_MEMBERS: Final = frozenset(
    {*_PARTY, "iban", "number_prefix", "credit_note_prefix", "due_days", "first_month", "taxes"}
)
_REQUIRED: Final = ("name", "street", "postcode", "city", "country", "email", "first_month")


@dataclass(frozen=True)
class Party:
    """A side of an invoice; what is not known is empty. `country` is as in DE."""

    name: str
    country: str
    street: str = ""
    postcode: str = ""
    city: str = ""
    vat_id: str = ""
    email: str = ""


@dataclass(frozen=True)
class Issuer:
    """`taxes` are rates by country, in hundredths of a percent; without any none is added."""

    party: Party
    first_month: str
    iban: str = ""
    number_prefix: str = _PREFIXES["number_prefix"]
    credit_note_prefix: str = _PREFIXES["credit_note_prefix"]
    due_days: int = 14
    taxes: Mapping[str, int] = field(default_factory=dict)


class IssuerInvalid(ValueError):  # noqa: N818 -- a fact about a file
    """The message names each member that is wrong, and what is allowed there."""


def read(text: str) -> Issuer:
    """Raises IssuerInvalid."""
    try:
        told = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise IssuerInvalid(f"it is not TOML: {error}") from None
    wrong = [
        *(f"{name}: is not known" for name in sorted(told.keys() - _MEMBERS)),
        *(f"{name}: is missing" for name in _REQUIRED if name not in told),
        *(f"{name}: {why}" for name in told if (why := _fault(name, told[name]))),
    ]
    taxes = told.get("taxes", {})
    if not wrong and taxes and (told["country"] not in taxes or "vat_id" not in told):
        wrong.append("taxes: needs the rate of the issuer's own country, and its vat_id")
    invoices, notes = (told.get(name, default) for name, default in _PREFIXES.items())
    if not wrong and invoices == notes:
        wrong.append("credit_note_prefix: must not be that of invoices (number_prefix)")
    if wrong:
        raise IssuerInvalid("; ".join(wrong))
    return Issuer(
        party=Party(**{name: told[name] for name in _PARTY if name in told}),
        taxes={country: int(rate * 100) for country, rate in taxes.items()},
        **{name: told[name] for name in _MEMBERS - {*_PARTY, "taxes"} if name in told},
    )


def fault_of_party(name: str, value: Any) -> str:
    """What is wrong with a member of a party; nothing is an empty text."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= _TEXT_MAX:
        return f"must be a text of 1 to {_TEXT_MAX} printable characters"
    if name == "country" and not _COUNTRY.fullmatch(value):
        return "must be two capital letters (ISO 3166), such as DE"
    if name == "vat_id" and not _VAT_ID.fullmatch(value):
        return "must begin with two capital letters, and go on with digits and capital letters"
    return ""


def _fault(name: str, value: Any) -> str:
    if name in _PARTY:
        return fault_of_party(name, value)
    if name == "taxes":
        return _fault_of_taxes(value)
    if name == "due_days":
        is_right = type(value) is int and 0 <= value <= _DUE_DAYS_MAX
        return "" if is_right else f"must be a whole number from 0 to {_DUE_DAYS_MAX}"
    pattern, example = {
        "iban": (_IBAN, "an IBAN without spaces"),
        **dict.fromkeys(_PREFIXES, (_PREFIX, "1 to 10 digits and capital letters")),
        "first_month": (_MONTH, "a month such as 2026-12"),
    }.get(name, (None, ""))
    if pattern is None or (isinstance(value, str) and pattern.fullmatch(value)):
        return ""
    return f"must be {example}"


def _fault_of_taxes(value: Any) -> str:
    allowed = f"must be a table of rates in percent by country, from 0 to {_RATE_MAX}"
    if not isinstance(value, dict):
        return allowed
    for country, rate in value.items():
        is_number = isinstance(rate, int | Decimal) and not isinstance(rate, bool)
        if not _COUNTRY.fullmatch(country) or not is_number or not 0 <= rate <= _RATE_MAX:
            return allowed
        if rate * 100 != int(rate * 100):
            return f"{allowed}, with at most two decimals"
    return ""
