"""How easily a password is guessed, and what to tell somebody who chose such a one."""

from collections.abc import Iterable, Iterator
from typing import Final

from zxcvbn_rs_py import Warning as Weakness
from zxcvbn_rs_py import zxcvbn

from control.policy.violations import Violation, wrong

GUESSES_MIN_LOG10: Final = 10.0
"""Ten billion guesses: what zxcvbn calls very unguessable.

At less, three parts that are easy by themselves would do, such as a name, a surname and a year.
"""
LOOKED_AT: Final = 32
"""Characters: what it takes to look grows with their number, to 60 ms here and 700 ms at 100."""
_PRODUCT: Final = ("menagerie", "database")
_MUCH_LOG10: Final = 1.0
"""Ten times as many guesses without what is known of the person: that is why it is easy."""
_PART_MIN: Final = 4
"""Shorter parts of a name are in too many words to count as the person's."""

REASONS: Final = (
    (Weakness.ThisIsATop10Password, "it is among the ten most common passwords"),
    (Weakness.ThisIsATop100Password, "it is among the hundred most common passwords"),
    (Weakness.ThisIsACommonPassword, "it is among the most common passwords"),
    (Weakness.ThisIsSimilarToACommonlyUsedPassword, "it is much like a common password"),
    (Weakness.AWordByItselfIsEasyToGuess, "it is a single word"),
    (Weakness.StraightRowsOfKeysAreEasyToGuess, "it follows a row of the keyboard"),
    (Weakness.ShortKeyboardPatternsAreEasyToGuess, "it is a short pattern on the keyboard"),
    (Weakness.RepeatsLikeAaaAreEasyToGuess, "it repeats one character"),
    (Weakness.RepeatsLikeAbcAbcAreOnlySlightlyHarderToGuess, "it repeats the same characters"),
    (Weakness.SequencesLikeAbcAreEasyToGuess, "it is a sequence such as abc or 6543"),
    (Weakness.RecentYearsAreEasyToGuess, "it is little more than a year"),
    (Weakness.DatesAreOftenEasyToGuess, "it is little more than a date"),
    (Weakness.NamesAndSurnamesByThemselvesAreEasyToGuess, "it is a name"),
    (Weakness.CommonNamesAndSurnamesAreEasyToGuess, "it is made of common names"),
)
_OWN: Final = "it is made of your name or your email address"
_OTHERWISE: Final = "it takes too few guesses"
_ADVICE: Final = "add words that nobody would guess, such as four that have nothing in common"
KNOWN: Final = (
    "this password is known from breaches of other services, so it is tried before others; choose"
    " words that nobody would guess, such as four that have nothing in common"
)


def check_choice(password: str, about: Iterable[str], field: str) -> list[Violation]:
    """Whether it may be somebody's password; `about` is what others know of them."""
    weakness = why_weak(password, about)
    if weakness is None:
        return []
    message = f"this password is too easy to guess: {weakness}; {_ADVICE}"
    return [wrong(field, "strength", message)]


def why_weak(password: str, about: Iterable[str]) -> str | None:
    """Why it is easily guessed; None where it is not.

    Of a long one, its beginning or its end must be hard to guess by itself: the time that it takes
    to look must not be for the caller to choose.
    """
    own = list(_parts(about))
    beginning = _weakness(password[:LOOKED_AT], own)
    if beginning is None or len(password) <= LOOKED_AT:
        return beginning
    return beginning if _weakness(password[-LOOKED_AT:], own) is not None else None


def _weakness(text: str, own: list[str]) -> str | None:
    found = zxcvbn(text, [*_PRODUCT, *own])
    if found.guesses_log10 >= GUESSES_MIN_LOG10:
        return None
    without = zxcvbn(text, list(_PRODUCT)).guesses_log10
    if without > found.guesses_log10 + _MUCH_LOG10 or any(one in text.lower() for one in own):
        return _OWN
    warning = found.feedback.warning if found.feedback else None
    return next((reason for one, reason in REASONS if one == warning), _OTHERWISE)


def _parts(about: Iterable[str]) -> Iterator[str]:
    """What is said of the person, as a whole and in parts."""
    for text in about:
        plain = "".join(each if each.isalnum() else " " for each in text)
        whole_and_parts = (text, *plain.split())
        yield from (one.lower() for one in whole_and_parts if len(one) >= _PART_MIN)
