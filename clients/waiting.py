"""Waiting for a resource's status by the server's long poll."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from clients.document import Ending, Operation
from clients.errors import ResourceFailed, WaitTimedOut

if TYPE_CHECKING:
    from clients.client import Client

POLL_S: Final = 20
# A server that does not hold the poll would be asked without pause.
REST_S: Final = 0.25
# What can no longer become anything else, and what also counts as arrived on the way there.
FINAL: Final = {"failed": set(), "deleted": {"erased"}, "erased": set[str]()}

OnChange = Callable[[Mapping[str, Any]], None]


def watch(
    client: "Client",
    operation: Operation,
    arguments: Mapping[str, Any],
    status: str,
    *,
    timeout_s: float,
    on_change: OnChange | None = None,
) -> dict[str, Any]:
    """Poll the operation until `status` is reached. See `Client.wait` for what it raises."""
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = deadline - time.monotonic()
        poll_s = max(1, min(POLL_S, int(left_s)))
        asked_at = time.monotonic()
        query = {"wait_for": status, "timeout_s": poll_s}
        known = {name: value for name, value in query.items() if operation.takes(name)}
        seen: dict[str, Any] = client.send(
            operation, {**arguments, **known}, timeout_s=poll_s + 15.0
        ).body
        if on_change is not None:
            on_change(seen)
        if arrived(seen, status):
            return seen
        name = seen.get("name") or seen.get("id")
        if seen["status"] in FINAL and not _may_go_on(seen["status"], status):
            raise ResourceFailed(
                f"{name} is {seen['status']} and will not be {status}{_reason(seen)}", seen
            )
        if time.monotonic() >= deadline:
            raise WaitTimedOut(
                f"{name} is {seen['status']}, not {status}, after {timeout_s:g} s", seen
            )
        time.sleep(max(0.0, min(REST_S - (time.monotonic() - asked_at), left_s)))


def arrived(seen: Mapping[str, Any], status: str) -> bool:
    return seen.get("status") == status or seen.get("status") in FINAL.get(status, set())


def _may_go_on(now: str, status: str) -> bool:
    # A failed or deleted instance can still be deleted or erased.
    return status == "erased" or (status == "deleted" and now == "failed")


def settle(
    read: Callable[[], Mapping[str, Any]],
    ending: Ending,
    *,
    timeout_s: float,
    on_change: OnChange | None = None,
) -> Mapping[str, Any]:
    """Read until what is read ends the wait, well or not. See `Client.wait` for what it raises."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = read()
        if on_change is not None:
            on_change(seen)
        if _shows(seen, ending.until):
            return seen
        name = seen.get("name") or seen.get("hostname") or seen.get("id") or ending.reader.noun
        if ending.unless and _shows(seen, ending.unless):
            status = seen.get("status")
            how = "failed" if status in {None, "failed"} else f"is {status}"
            raise ResourceFailed(f"{name} {how}{_reason(seen)}", seen)
        if time.monotonic() >= deadline:
            raise WaitTimedOut(f"{name} is not done after {timeout_s:g} s{_reason(seen)}", seen)
        time.sleep(REST_S)


def _reason(seen: Mapping[str, Any]) -> str:
    """Its own, or what came back at the last attempt of a delivery."""
    told = seen.get("status_reason")
    if told is None and seen.get("attempts"):
        last = seen["attempts"][-1]
        told = last["error"] or f"the receiver answered with status {last['status']}"
    return f": {told}" if told else ""


def _shows(seen: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Each member with its value, or with one of a list of them."""
    listed = {name: value if isinstance(value, list) else [value] for name, value in wanted.items()}
    return all(seen.get(name) in values for name, values in listed.items())
