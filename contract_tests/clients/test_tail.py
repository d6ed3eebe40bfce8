"""`menagerie events tail` as a process of its own, against the real control plane."""

import json
import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from contract_tests.api.harness import Tenant
from contract_tests.api.streams import happen
from contract_tests.clients.following_commands import started
from contract_tests.clients.test_control_plane import Served, served
from storage.events import events

__all__ = ["served"]


@pytest.fixture
def tenant(served: Served) -> Tenant:
    return served.house.tenant()


def tail(
    served: Served, tenant: Tenant, folder: Path, *words: str
) -> AbstractContextManager[subprocess.Popen[str]]:
    return started(served, tenant, folder, "events", "tail", *words)


def test_each_event_is_a_line_until_it_is_interrupted(
    served: Served, tenant: Tenant, folder: Path
) -> None:
    """The house ends each stream after a fifth of a second: it goes on over many of them."""
    instance_id = served.house.instance(tenant, running=False)
    name = served.house.get(f"{tenant.path}/instances/{instance_id}", tenant.key).json()["name"]
    words = ("--since", events.FIRST, "--types", "instance.paused.v1,backup.*")
    with tail(served, tenant, folder, *words, "--instance", name) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        happen(served.house, tenant.org_id, None)
        for _ in range(2):
            happen(served.house, tenant.org_id, instance_id)
            when, kind, which, says = process.stdout.readline().rstrip().split(maxsplit=4)[1:]
            assert when.endswith("Z")
            assert (kind, which, says) == ("instance.paused.v1", name, "paused_by idle")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stdout.read() == ""
        assert process.stderr.read() == ""


def test_as_json_it_is_the_event_and_a_refusal_ends_it(
    served: Served, tenant: Tenant, folder: Path
) -> None:
    instance_id = served.house.instance(tenant, running=False)
    with tail(served, tenant, folder, "--json", "--since", events.FIRST) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        found = json.loads(process.stdout.readline())
        assert (found["type"], found["data"]["instance_id"]) == (
            "instance.requested.v1",
            instance_id,
        )
        served.house.change_key(tenant.org_id, tenant.key_id, revoked_at=served.house.now())
        assert process.wait(60) == 3
        assert "401" in process.stderr.read()


def test_a_pattern_that_matches_nothing_is_told_with_what_there_is(
    served: Served, tenant: Tenant, folder: Path
) -> None:
    with tail(served, tenant, folder, "--types", "instance.*,instances.*") as process:
        assert process.stderr is not None
        assert process.wait(60) == 6
        told = process.stderr.read()
        assert "--types: 'instances.*' matches no kind of event" in told
        assert "instance.*" in told
