"""Nobody is refused for what the routes said before: they are read anew first."""

import pytest

from contract_tests.gateway.backends import http
from contract_tests.gateway.conftest import MakeGateway
from contract_tests.gateway.postgres_clients import Postgres
from contract_tests.gateway.rig import ZONE, GatewayRig, until
from contract_tests.gateway.test_postgres_cancel import in_plaintext, sleeping

# Workers look at the routes by themselves as they start, and not again while a test lasts.
NEVER_S = 3_600.0


def add_unseen(gateway: GatewayRig, name: str, **members: object) -> str:
    """The host of an instance that no worker has heard of."""
    host = f"duckdb-{name}.{ZONE}"
    path = str(gateway.home / "run" / f"{name}.sock")
    gateway.routes[host] = {"instance_id": f"inst_{name}", "socket": path, "state": "running"}
    gateway.set_route(host, **members)
    return host


def test_what_was_routed_a_moment_ago_is_served(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(poll_s=NEVER_S)
    gateway.serve(gateway.home / "run" / "fresh.sock", http("fresh"))
    host = add_unseen(gateway, "fresh", state="paused", refusal="the instance is paused")
    refused = gateway.get(host)
    assert (refused.status_code, refused.json()["error"]) == (503, "the instance is paused")
    gateway.set_route(host, state="running", refusal=None)
    assert gateway.get(host).text == "fresh"


def test_who_was_allowed_a_moment_ago_is_let_in(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(poll_s=NEVER_S)
    gateway.serve(gateway.home / "run" / "listed.sock", http("listed"))
    host = add_unseen(gateway, "listed", allow_cidrs=["203.0.113.7"])
    with pytest.raises(OSError, match=r"(?i)eof|reset"):
        gateway.connect(host)
    gateway.set_route(host, allow_cidrs=["127.0.0.1"])
    assert gateway.get(host).text == "listed"


@pytest.mark.nightly
def test_a_cancel_finds_a_session_of_what_was_routed_a_moment_ago(
    make_gateway: MakeGateway, postgres: Postgres
) -> None:
    gateway = make_gateway(poll_s=NEVER_S, workers=4, ports={"https": 0, "postgres": 0})
    for number in range(4):
        # Of each the worker has heard that serves the session, and rarely the one that cancels.
        name, path = f"fresh-pg-{number}", str(postgres.socket)
        host = add_unseen(gateway, name, protocol="postgres", socket=path)
        with sleeping(gateway, host, postgres) as sleeper:
            in_plaintext(sleeper.connection)
            assert sleeper.cancelled.wait(60), number


def test_routes_that_a_connection_read_are_told_too(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(poll_s=2.0)
    gateway.serve(gateway.home / "run" / "told.sock", http("told"))
    assert gateway.get(add_unseen(gateway, "told")).text == "told"
    until(lambda: gateway.all_know(gateway._version), "they are told")
