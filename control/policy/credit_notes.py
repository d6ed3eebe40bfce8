"""What a credit note says: so much of each line of an invoice, never more than is left of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from control.policy.invoices import Tax
from control.policy.prices import MICRO_CENTS

Lines = Sequence[Mapping[str, Any]]
_CORRECTION: Final = "Correction of {}"


class NotCredited(ValueError):  # noqa: N818 -- a fact about what was asked
    """The message says what is left of the invoice."""


@dataclass(frozen=True)
class NoteSums:
    """Of an invoice, or of credit notes: before credits and tax, and what credits paid of it."""

    subtotal_cents: int
    credits_cents: int

    @property
    def net_cents(self) -> int:
        return self.subtotal_cents - self.credits_cents


@dataclass(frozen=True)
class Correction:
    """Amounts are in cents; each line names that of the invoice as `corrects_line`, from 1."""

    lines: list[dict[str, Any]]
    subtotal_cents: int
    credits_cents: int
    tax_cents: int

    @property
    def total_cents(self) -> int:
        return self.subtotal_cents - self.credits_cents + self.tax_cents


def correct(
    lines: Lines,
    noted: Sequence[Lines],
    of: NoteSums,
    before: NoteSums,
    tax: Tax,
    asked: Mapping[int, int],
) -> Correction:
    """Of an invoice with these lines, whose notes have `noted` lines and, together, `before`.

    `asked` has an amount in cents before tax for the number of each line. What was to be paid is
    credited first, and then what credits paid, so a note of all that is left gives all of these
    back. The taxes of all notes together are the tax on what they credit together.
    """
    left = left_of(lines, noted)
    if sum(asked.values()) == of.subtotal_cents - before.subtotal_cents:
        asked = all_of(left)  # with what was too little for a cent
    made = [_line(lines[number - 1], left[number], number, asked[number]) for number in asked]
    subtotal = sum(line["amount_cents"] for line in made)
    credits_cents = max(0, subtotal - (of.net_cents - before.net_cents))
    was, becomes = before.net_cents, before.net_cents + subtotal - credits_cents
    return Correction(made, subtotal, credits_cents, tax.cents(becomes) - tax.cents(was))


@dataclass(frozen=True)
class Left:
    """Of a line of an invoice: what no credit note has taken."""

    amount_cents: int
    micro_cents: int
    quantity: int


def left_of(lines: Lines, noted: Sequence[Lines]) -> dict[int, Left]:
    """By the number of the line, from 1."""
    left = {}
    for number, line in enumerate(lines, 1):
        parts = [one for note in noted for one in note if one["corrects_line"] == number]
        left[number] = Left(
            *(
                line[name] - sum(part[name] for part in parts)
                for name in ("amount_cents", "micro_cents", "quantity")
            )
        )
    return left


def all_of(left: Mapping[int, Left]) -> dict[int, int]:
    """What to ask for to credit everything; raises NotCredited where nothing is left."""
    if not sum(one.amount_cents for one in left.values()):
        raise NotCredited("all of it is credited already")
    return {number: one.amount_cents for number, one in left.items() if one.micro_cents}


def spread(left: Mapping[int, Left], cents: int) -> dict[int, int]:
    """An amount over the lines, by what is left of each; raises NotCredited for too much.

    Nothing of it is for lines of less than nothing, which corrections of earlier months are.
    """
    whole = sum(one.amount_cents for one in left.values())
    if not 0 < cents <= whole:
        raise NotCredited(f"an amount must be more than nothing, and at most {_shown(whole)}")
    if cents == whole:
        return all_of(left)
    owed = {number: one.amount_cents for number, one in left.items() if one.amount_cents > 0}
    base = sum(owed.values())
    shares = {number: divmod(cents * amount, base) for number, amount in owed.items()}
    rest = cents - sum(share for share, _ in shares.values())
    nearest = sorted(shares, key=lambda number: (-shares[number][1], number))
    rounded = {number: shares[number][0] + (number in nearest[:rest]) for number in shares}
    return {number: amount for number, amount in rounded.items() if amount}


def chosen(
    lines: Lines, left: Mapping[int, Left], asked: Mapping[int, int | None]
) -> dict[int, int]:
    """Lines by their numbers, without an amount all that is left of them; raises NotCredited."""
    found = {}
    for number, cents in asked.items():
        if number not in left:
            raise NotCredited(f"there is no line {number}: {_told(lines, left)}")
        most = left[number].amount_cents
        found[number] = most if cents is None else cents
        if not 0 < found[number] <= most:
            raise NotCredited(f"line {number} has {_shown(most)} left: {_told(lines, left)}")
    whole = sum(one.amount_cents for one in left.values())
    if sum(found.values()) > whole:
        raise NotCredited(f"the invoice has {_shown(whole)} left: {_told(lines, left)}")
    return found


def _line(line: Mapping[str, Any], left: Left, number: int, cents: int) -> dict[str, Any]:
    """Whoever credits all that is left of a line credits its micro-cents to the last."""
    is_rest = cents == left.amount_cents
    is_whole = is_rest and left.micro_cents == line["micro_cents"]
    text, micro_cents = line["description"], min(left.micro_cents, cents * MICRO_CENTS)
    return {
        **line,
        "description": text if is_whole else _CORRECTION.format(text),
        "quantity": left.quantity if is_rest else 0,
        "micro_cents": left.micro_cents if is_rest else micro_cents,
        "amount_cents": cents,
        "corrects_line": number,
    }


def _told(lines: Lines, left: Mapping[int, Left]) -> str:
    told = (
        f"{number} is {lines[number - 1]['description']} ({_shown(one.amount_cents)} left)"
        for number, one in left.items()
    )
    return "; ".join(told)


def _shown(cents: int) -> str:
    return f"{'-' * (cents < 0)}{abs(cents) // 100}.{abs(cents) % 100:02}"
