"""Lines of an invoice: what was used, what is corrected, and whose it is."""

from control.policy.invoices import CARRIED_OVER, CorrectedUsage, carried_over, lines, whole
from control.policy.rating import EGRESS, STORAGE, Charge
from control.policy.sizes import GB

CENT = 10**6
USED = {EGRESS: Charge(10 * GB, 500 * CENT), STORAGE: Charge(0, 0)}
LESS = CorrectedUsage("2026-09", EGRESS, -20 * GB, -900 * CENT)


def test_a_correction_has_a_line_of_its_own() -> None:
    """What was used is told without it, as the sums have it already."""
    used = {EGRESS: Charge(10 * GB + LESS.quantity, 500 * CENT + LESS.micro_cents)}
    made = lines(used, [LESS])
    assert [(one.description, one.amount_cents) for one in made] == [
        ("Egress: 10.00 GB", 500),
        ("Correction of 2026-09, egress: -20.00 GB", -900),
    ]
    assert sum(one.micro_cents for one in made) == used[EGRESS].micro_cents


def test_a_bill_of_less_than_nothing_is_made_nothing() -> None:
    (*_, last) = made = whole(lines({EGRESS: Charge(-10 * GB, -400 * CENT)}, [LESS]))
    assert (last.metric, last.amount_cents) == (CARRIED_OVER, 400)
    assert (sum(one.amount_cents for one in made), carried_over(made)) == (0, 400)
    assert whole(lines(USED)) == lines(USED)


def test_each_line_says_whose_it_is_where_it_is_for_several() -> None:
    (used,) = lines(USED, of=("org_1", "Looms"))
    assert (used.org_id, used.description) == ("org_1", "Looms: Egress: 10.00 GB")
    assert [one.org_id for one in lines(USED)] == [None]
