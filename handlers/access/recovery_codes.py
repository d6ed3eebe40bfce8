"""Recovery codes: what people write down in case that they lose their second factor."""

from control.boundary import Call, identity
from storage.access import recovery_codes
from storage.access.users import User


def renewed(call: Call, user: User) -> list[str]:
    """New ones, shown to nobody again; those that the user had are good for nothing more."""
    codes = [identity.new_recovery_code() for _ in range(identity.RECOVERY_CODES)]
    hashes = (identity.recovery_code_sha256(user.id, each) for each in codes)
    recovery_codes.replace(call.db, user.id, hashes)
    return codes


def left(call: Call, user: User) -> int | None:
    """How many can still be used; None without a second factor."""
    if not user.has_second_factor:
        return None
    return recovery_codes.count_left(call.db, user.id)
