"""When the right of a caller ends by itself, so that nothing needs to be asked before then."""

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a call has streams, which end with the right
    from control.boundary.call import Call


def left_s(call: "Call") -> float:
    """In how many seconds; infinite where only somebody's act ends it, and 0 where it is unknown.

    Those of support are let in by several grants and the second factor, and are few: they are
    looked at often instead.
    """
    if call.caller is not None and call.caller.support_grants:
        return 0.0
    return min(((end - call.now).total_seconds() for end in _ends(call)), default=math.inf)


def _ends(call: "Call") -> Iterator[datetime]:
    caller, org = call.caller, call.org
    if caller is None:
        return
    key, session = caller.key, caller.session
    if key is not None:
        if key.expires_at is not None:
            yield key.expires_at
        if org is not None and org.api_key_max_age_s is not None:
            yield key.created_at + timedelta(seconds=org.api_key_max_age_s)
    if session is not None:
        yield session.expires_at
        if org is not None and org.session_max_age_s is not None:
            yield session.created_at + timedelta(seconds=org.session_max_age_s)
