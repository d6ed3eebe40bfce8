"""How many accounts an identity provider may have made for addresses that nobody has shown.

For an address in a verified domain of the organization there is no such limit: the domain is its
own, and its people may all come on one morning. Whoever runs a provider can name any other address.
"""

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from specserver import Forbidden
from storage.sso import made_accounts

WITHIN: Final = timedelta(days=1)
OF_ORG_MAX: Final = 200
OF_PLACE_MAX: Final = 100
"""From one address, to all organizations."""


def count(db: Session, org_id: str, user_id: str, place: str, at: datetime) -> None:
    """One more was made. Raises Forbidden where there are enough, and nothing is left then."""
    since = at - WITHIN
    for found, most, what in (
        (made_accounts.of_org(db, org_id, since), OF_ORG_MAX, "for the organization"),
        (made_accounts.of_place(db, place, since), OF_PLACE_MAX, "for people at your address"),
    ):
        if found >= most:
            raise Forbidden(
                f"{most} accounts with addresses of domains that are not verified were made {what}"
                " within a day: an administrator has to verify the domain of your address, or you"
                " try again tomorrow",
                code="sso_account_limit",
            )
    made_accounts.note(db, org_id, user_id, place, at)
