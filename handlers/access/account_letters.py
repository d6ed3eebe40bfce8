"""What is told to people about their accounts, beside what they asked for."""

from control.boundary import Call
from control.mail import letters
from storage.access.users import User


def password_changed(call: Call, user: User) -> letters.Letter:
    """To whoever may not have done it."""
    return letters.password_changed(
        to=user.email, at=call.now, ip=call.ip, base_url=call.services.settings.base_url
    )
