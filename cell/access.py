"""Access that lasts, beyond the request of its one-time URL: open consoles and followed logs.

The control plane asks who has any, and tells whose right has ended; see decision 0028.
"""

from collections import defaultdict

from cell.console.desk import Desk
from cell.followers import Followers

Access = dict[str, list[dict[str, str]]]


def held(console: Desk, followers: Followers) -> Access:
    """By instance."""
    found: Access = defaultdict(list)
    for kind, holders in (("console", console.sessions.holders()), ("logs", followers.holders())):
        for instance_id, holder in holders:
            found[instance_id].append({"holder": holder, "kind": kind})
    return found


def end(console: Desk, followers: Followers, instance_id: str, holders: list[str]) -> None:
    for holder in holders:
        console.end_of(instance_id, holder)
        followers.end_of(instance_id, holder)
