"""What organizations say of themselves as customers: how it is checked, kept and shown."""

from collections.abc import Mapping
from typing import Any, Final

from stdnum.eu import vat

from control.policy.issuers import EU
from control.policy.violations import Violation, wrong

_MEMBERS: Final = {
    "name": "name",
    "street": "street",
    "postcode": "postcode",
    "city": "city",
    "country": "country",
    "vat_number": "vat_id",
    "email": "email",
}
"""As the API names them, and as they are kept."""
_GREECE: Final = {"GR": "EL"}
"""Whose VAT numbers do not begin with their country."""


def shown(details: Mapping[str, str]) -> dict[str, str | None]:
    return {name: details.get(kept_as) or None for name, kept_as in _MEMBERS.items()}


def kept(body: Mapping[str, Any]) -> dict[str, str]:
    """What is not known is left out."""
    return {_MEMBERS[name]: value for name, value in body.items() if value is not None}


def faults(body: Mapping[str, Any]) -> list[Violation]:
    """Of what each member cannot say by itself."""
    number, country = body["vat_number"], body["country"]
    if number is None:
        return []
    if country is None:
        return [wrong("country", "required", "must be given with a VAT number")]
    if number[:2] != _GREECE.get(country, country):
        message = f"must begin with {_GREECE.get(country, country)}, as the country is {country}"
        return [wrong("vat_number", "format", message)]
    if not is_vat_id(number):
        message = f"is no VAT number of {country}: a digit may be wrong or missing"
        return [wrong("vat_number", "format", message)]
    return []


def is_vat_id(number: str) -> bool:
    """By its form and check digits; outside the EU anything is one."""
    return number[:2] not in EU | {"EL"} or bool(vat.is_valid(number))
