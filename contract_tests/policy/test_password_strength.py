"""Which passwords are too easy to guess, what is said of them, and how little it takes to look."""

import time

import pytest

from control.policy.passwords import (
    GUESSES_MIN_LOG10,
    LOOKED_AT,
    REASONS,
    check_choice,
    why_weak,
)

ADA = ("ada.lovelace@example.com", "Ada Lovelace")
OWN = "it is made of your name or your email address"
COSTLY = "4@8({[<369|!1/|0$57+%2"
"""Each of these characters stands for a letter, and what they spell together is looked for."""


@pytest.mark.parametrize(
    "password",
    [
        "correct-horse-battery",
        "staple-of-nine-oaks",
        "xK9#vQ2$mLp7",
        "Ein Fuchs jagt durchs Moor",
        # Long ones: the beginning or the end suffices.
        "a" * LOOKED_AT + "staple-of-nine-oaks",
        "staple-of-nine-oaks" + "1234" * 50,
    ],
)
def test_a_password_that_may_be_chosen(password: str) -> None:
    assert check_choice(password, ADA, "password") == []


@pytest.mark.parametrize(
    ("password", "reason"),
    [
        ("password1234", "it is among the most common passwords"),
        ("iloveyou1234", "it is much like a common password"),
        ("aaaaaaaaaaaa", "it repeats one character"),
        ("a" * 256, "it repeats one character"),
        ("menageriemenagerie", "it repeats the same characters"),
        ("qwertyuiop[]", "it follows a row of the keyboard"),
        ("abcdefghijkl", "it is a sequence such as abc or 6543"),
        ("michaeljohnson", "it is made of common names"),
        ("January-1990", "it takes too few guesses"),
        ("ada.lovelace@example.com", OWN),
        ("Ada Lovelace", OWN),
        ("Lovelace-2026", OWN),
        ("ecalevol.ada", OWN),
        ("adalovelace1815", OWN),
        ("Summer2026!!", "it takes too few guesses"),
    ],
)
def test_why_one_may_not_be_chosen(password: str, reason: str) -> None:
    (found,) = check_choice(password, ADA, "new_password")
    assert found["pointer"] == "/new_password"
    assert found["keyword"] == "strength"
    assert found["message"] == (
        f"this password is too easy to guess: {reason};"
        " add words that nobody would guess, such as four that have nothing in common"
    )


def test_what_is_known_of_somebody_counts_for_them_alone() -> None:
    assert why_weak("Lovelace-2026", ADA) == OWN
    assert why_weak("Lovelace-2026", ("bob@example.com", "Bob")) != OWN


def test_a_short_name_is_in_no_password() -> None:
    assert why_weak("aaaaaaaaaaaa", ("", "A", "Al")) == "it repeats one character"


def test_every_reason_there_is_has_words() -> None:
    from zxcvbn_rs_py import Warning as Weakness  # noqa: PLC0415 -- what the library may say

    known = {str(one) for one, _ in REASONS}
    every = {str(getattr(Weakness, name)) for name in vars(Weakness) if name[0].isupper()}
    assert known == every
    assert len(known) == len(REASONS)
    assert GUESSES_MIN_LOG10 == 10


@pytest.mark.parametrize("length", [64, 256])
def test_a_long_password_takes_no_longer_than_a_short_one(length: int) -> None:
    """256 characters would take 700 ms; these are looked at as 32 are."""
    why_weak("warm", ADA)
    costly = (COSTLY * 12)[:length]

    def took(password: str) -> float:
        started = time.process_time()
        why_weak(password, ADA)
        return time.process_time() - started

    short = min(took(costly[:LOOKED_AT]) for _ in range(3))
    assert min(took(costly) for _ in range(3)) < 3 * short + 0.05
