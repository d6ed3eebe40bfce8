"""Owns plain words for what pydantic refuses: its own are written for programmers."""

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import Any, Final

_WORDS: Final = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "string_type": "must be a text in quotes",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
}


def refusal(found: Mapping[str, Any]) -> str:
    """What one of the `errors()` of a ValidationError says."""
    words = _WORDS.get(found["type"])
    if words is None:
        return str(found["msg"]).removeprefix("Value error, ")
    return words.format(**found.get("ctx", {}))


def no_choice(given: str, choices: Iterable[str]) -> str:
    """The choices, those nearest to what was given first."""

    def unlike(choice: str) -> float:
        return -SequenceMatcher(None, given.casefold(), choice.casefold()).ratio()

    nearest = sorted(choices, key=unlike)
    return f"{given!r} is not one of the choices; choose one of {listed(nearest, 'and')}"


def listed(words: list[str], last: str) -> str:
    return " ".join([*([", ".join(words[:-1]), last] if len(words) > 1 else []), *words[-1:]])
