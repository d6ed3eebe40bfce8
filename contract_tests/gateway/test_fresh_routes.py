"""Nobody is refused for what the routes said before: they are read anew first."""

from contract_tests.gateway.backends import http
from contract_tests.gateway.conftest import MakeDoor
from contract_tests.gateway.door import ZONE


def test_what_was_routed_a_moment_ago_is_served(make_door: MakeDoor) -> None:
    # It looks at the routes by itself as it starts, and not again while this test lasts.
    door = make_door(poll_s=3_600.0)
    host, path = f"duckdb-fresh.{ZONE}", door.home / "run" / "fresh.sock"
    door.serve(path, http("fresh"))
    door.routes[host] = {
        "instance_id": "inst_fresh",
        "socket": str(path),
        "state": "paused",
        "refusal": "the instance is paused",
    }
    door.write_routes()
    refused = door.get(host)
    assert (refused.status_code, refused.json()["error"]) == (503, "the instance is paused")
    door.set_route(host, state="running", refusal=None)
    assert door.get(host).text == "fresh"
