"""Cursors: one for each position of each list, which later releases read, too."""

import base64

import pytest

from control.boundary.cursors import Cursors
from specserver import Invalid

CURSORS = Cursors(b"k" * 32)
PLACE = "instances.list org_1"
GIVEN = "eyJhZnRlciI6Imluc3RfMSJ9.6uvuWcdDreo1Z6fLgvE3dzCVFGvKRI9DvkjSUorEM5o"
"""What a release before this one gave."""


def test_a_list_goes_on_after_an_upgrade() -> None:
    assert CURSORS.write({"after": "inst_1"}, PLACE) == GIVEN
    assert CURSORS.read(GIVEN, PLACE) == {"after": "inst_1"}


def test_a_position_that_is_not_plain_text_comes_back_too() -> None:
    position = {"after": "é\n", "number": 7, "none": None}
    assert CURSORS.read(CURSORS.write(position, PLACE), PLACE) == position


def same_bits() -> str:
    """The signature's last character has two bits that mean nothing."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = GIVEN[:-1] + letters[letters.index(GIVEN[-1]) ^ 1]
    signatures = {base64.urlsafe_b64decode(each.split(".")[1] + "=") for each in (GIVEN, other)}
    assert len(signatures) == 1
    return other


@pytest.mark.parametrize(
    ("cursor", "place"),
    [(GIVEN, "instances.list org_2"), (GIVEN[1:], PLACE), (same_bits(), PLACE), ("", PLACE)],
    ids=["of another list", "cut", "with other bits", "empty"],
)
def test_what_is_no_cursor_of_this_list_is_refused_and_says_what_to_do(
    cursor: str, place: str
) -> None:
    with pytest.raises(Invalid) as refused:
        CURSORS.read(cursor, place)
    assert refused.value.detail == "the cursor does not belong to this list"
    assert refused.value.errors == [
        {
            "parameter": "cursor",
            "keyword": "cursor",
            "message": "must be a next_cursor from this list; leave it out to start at the"
            " beginning",
        }
    ]
