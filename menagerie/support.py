"""Who is of the support of this installation: organizations can give them access for a time."""

from storage.access import users
from storage.database import Database


class UnknownUserError(Exception):
    """There is no account with this email address."""


def change(database_url: str, email: str, *, ends: bool) -> None:
    """Put somebody with an account among support, or take them out. Raises UnknownUserError."""
    with Database(database_url).write() as db:
        user = users.by_email(db, email)
        if user is None:
            raise UnknownUserError(f"there is no account with the email address {email}")
        user.is_support = not ends


def everybody(database_url: str) -> list[str]:
    """The email addresses of all who are of support."""
    with Database(database_url).read() as db:
        return [user.email for user in users.of_support(db)]
