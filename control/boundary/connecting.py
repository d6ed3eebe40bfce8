"""Whether a caller may connect to the instance, asked again of who repeats a request to it."""

from typing import TYPE_CHECKING

from control import network_rules
from control.boundary import subjects
from storage.network import networks

if TYPE_CHECKING:  # the boundary makes calls, and asks this of them
    from control.boundary.call import Call


def check(call: "Call") -> None:
    """What a cell answered is the content of a database: a list may have changed since then."""
    instance = subjects.resolve(call, lock=False).get("instance")
    if instance is not None:
        network_rules.check(networks.of_instance(call.db, instance), call.ip, "the queue API")
