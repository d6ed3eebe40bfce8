"""What one tenant has under way in a cell leaves it to the others."""

import concurrent.futures
import contextlib

import httpx
import pytest

from cell.instances.pools import FOLLOWED_LOGS
from contract_tests.cell.console.test_console import Browser
from contract_tests.cell.rig import Rig, until

RUNS_OF_ONE = 6
SLEEPING = {
    "mariadb": "SELECT SLEEP(25)",
    "duckdb": "SELECT sum(hash(i) % 7) FROM range(1000000000000) t(i)",
}


@pytest.fixture(scope="module")
def versions(shared_rig: Rig) -> dict[str, str]:
    """The newest of each engine."""
    engines = shared_rig.get("/v1/cell").json()["engines"]
    return {each["engine"]: each["versions"][-1] for each in engines}


@pytest.mark.nightly
def test_consoles_of_one_tenant_leave_those_of_others_served(sql_rig: Rig) -> None:
    crowded = sql_rig.make(tenant="crowd")
    beside = sql_rig.make(tenant="crowd")
    other = sql_rig.make(tenant="other")
    sleeping = SLEEPING[sql_rig.usual["engine"]]
    consoles = [Browser(sql_rig, crowded) for _ in range(9)]
    for each in consoles:
        each.load()
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        runs = [pool.submit(each.post, "run", {"sql": sleeping}) for each in consoles]
        until(lambda: sum(run.done() for run in runs) == 9 - RUNS_OF_ONE, "too many are refused")
        refused = [run.result() for run in runs if run.done()]
        assert [answer.status_code for answer in refused] == [503] * 3
        assert "your organization's consoles" in refused[0].text
        second = Browser(sql_rig, beside)
        second.load()
        assert second.post("run", {"sql": "SELECT 1"}).status_code == 503
        served = Browser(sql_rig, other)
        served.load()
        assert served.run("SELECT 42")["rows"] == [["42"]]
        for each in consoles:
            each.post("stop")
    assert second.run("SELECT 1")["rows"] == [["1"]]


@pytest.mark.nightly
def test_consoles_of_one_person_are_shared_by_all_their_organizations(
    shared_rig: Rig, versions: dict[str, str]
) -> None:
    """A statement that sleeps costs nothing, and organizations are free."""
    version = versions["postgres"]
    made = [
        shared_rig.make(engine="postgres", engine_version=version, tenant=f"one-of-{number}")
        for number in range(2)
    ]
    consoles = [Browser(shared_rig, each, person="one") for each in made for _ in range(4)]
    for each in consoles:
        each.load()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(each.post, "run", {"sql": "SELECT pg_sleep(25)"}) for each in consoles]
        until(lambda: sum(run.done() for run in runs) == 8 - RUNS_OF_ONE, "too many are refused")
        assert {run.result().status_code for run in runs if run.done()} == {503}
        colleague = Browser(shared_rig, made[0], person="colleague")
        colleague.load()
        assert colleague.run("SELECT 42")["rows"] == [["42"]]
        for each in consoles:
            each.post("stop")


def test_followed_logs_of_one_person_are_of_all_their_organizations(light_rig: Rig) -> None:
    made = [light_rig.make(tenant=f"reader-{number}") for number in range(2)]
    tokens = [light_rig.token(each, "logs", person="reader") for each in made * 11]
    with contextlib.ExitStack() as held:
        followed = []
        for token in tokens[: FOLLOWED_LOGS + 1]:
            client = held.enter_context(light_rig.client())
            path = f"/v1/logs/{token}?follow=true"
            followed.append(held.enter_context(client.stream("GET", path)))
        assert {each.status_code for each in followed} == {200}
        for _ in followed[0].iter_bytes():
            pass  # it ends


def test_followed_logs_of_one_tenant_leave_those_of_others(light_rig: Rig) -> None:
    crowd, other = light_rig.make(tenant="readers"), light_rig.make(tenant="another")
    with contextlib.ExitStack() as held:
        clients = [held.enter_context(light_rig.client()) for _ in range(FOLLOWED_LOGS + 2)]
        path = "/v1/logs/{}?follow=true"
        oldest: httpx.Response | None = None
        for number in range(FOLLOWED_LOGS):
            token = light_rig.token(crowd, "logs")
            followed = held.enter_context(clients[number].stream("GET", path.format(token)))
            assert followed.status_code == 200
            oldest = oldest or followed
        token = light_rig.token(crowd, "logs")
        newest = held.enter_context(clients[-2].stream("GET", path.format(token)))
        assert newest.status_code == 200, "the oldest makes room, whoever began it"
        with clients[-1].stream("GET", path.format(light_rig.token(other, "logs"))) as served:
            assert served.status_code == 200
        assert oldest is not None
        for _ in oldest.iter_bytes():
            pass  # it ends


@pytest.mark.parametrize("ends", ["rotate", "network", "delete"])
def test_a_followed_log_ends_with_what_it_was_allowed_by(light_rig: Rig, ends: str) -> None:
    instance_id = light_rig.make(tenant=f"ends-{ends}", allow_cidrs=None)
    token = light_rig.token(instance_id, "logs")
    with (
        light_rig.client() as http,
        http.stream("GET", f"/v1/logs/{token}?follow=true") as followed,
    ):
        assert followed.status_code == 200
        if ends == "rotate":
            light_rig.rotate(instance_id)
        elif ends == "network":
            light_rig.put(instance_id, allow_cidrs=["192.0.2.0/24"])
        else:
            light_rig.action(instance_id, "delete")
        for _ in followed.iter_bytes():
            pass  # it ends
