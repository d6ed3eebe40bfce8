"""`menagerie webhooks listen` as a process of its own, against the real control plane."""

import json
import re
import signal
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from clients import webhook_signing
from contract_tests.api.harness import Tenant
from contract_tests.api.streams import Stream, happen
from contract_tests.clients.conftest import Cli
from contract_tests.clients.following_commands import started
from contract_tests.clients.hooks import Received, Receiver, receiving, status
from contract_tests.clients.test_control_plane import Served, served
from storage.events import events

__all__ = ["served"]

DEADLINE_S = 60
CUT = "whsec_WROGqvn0uroB83BEGu30Dxsf83cfq+f4oUUU+ic/WW8"
PROGRAM = (
    "from clients import following; following.AGAIN_AFTER_S = 0.1;"
    "from menagerie.__main__ import main; main()"
)


@pytest.fixture
def tenant(served: Served) -> Tenant:
    return served.house.tenant()


def listening(
    served: Served, tenant: Tenant, folder: Path, *words: str
) -> AbstractContextManager[subprocess.Popen[str]]:
    return started(served, tenant, folder, "webhooks", "listen", *words, program=("-c", PROGRAM))


def received(receiver: Receiver, count: int) -> list[Received]:
    deadline = time.monotonic() + DEADLINE_S
    while len(receiver.received) < count:
        assert time.monotonic() < deadline, receiver.received
        time.sleep(0.02)
    return receiver.received


def test_each_event_is_forwarded_once_over_disconnects_until_it_is_interrupted(
    served: Served, tenant: Tenant, folder: Path
) -> None:
    """The house ends each stream after a fifth of a second, so that each event has its own."""
    with receiving(status(500), status(200)) as receiver:
        words = ("--forward-to", receiver.url, "--since", events.FIRST)
        with listening(served, tenant, folder, *words) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            found = re.fullmatch(r"signing secret: (whsec_\S+)\n", process.stdout.readline())
            assert found is not None
            happened = []
            for code in (500, 200, 200):
                time.sleep(0.4)  # where it has not ended by then, less is tested
                happened += happen(served.house, tenant.org_id, None)
                shown = process.stdout.readline()
                assert re.fullmatch(
                    rf"\S+ \S+Z  instance\.paused\.v1 +→ {code} \(\d+ ms\)\n", shown
                )
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 130
            assert process.stdout.read() == process.stderr.read() == ""
        assert [one.headers["SVC-Event-Id"] for one in receiver.received] == happened
        for one in receiver.received:
            assert Webhook(found[1]).verify(one.body, one.headers)["org_id"] == tenant.org_id


def test_chosen_events_are_signed_with_the_secret_that_was_given(
    served: Served, tenant: Tenant, folder: Path
) -> None:
    secret = webhook_signing.new_secret()
    (folder / "secret.txt").write_text(f"{secret}\n")
    instance_id, other_id = (served.house.instance(tenant, running=False) for _ in range(2))
    happen(served.house, tenant.org_id, other_id)
    happen(served.house, tenant.org_id, instance_id)
    with receiving() as receiver:
        words = ["--forward-to", receiver.url, "--since", events.FIRST, "--secret", "@secret.txt"]
        words += ["--types", "instance.paused.v1,backup.*", "--instance", instance_id]
        with listening(served, tenant, folder, *words) as process:
            assert process.stdout is not None
            assert "instance.paused.v1" in process.stdout.readline()
        (got,) = received(receiver, 1)
    assert Webhook(secret).verify(got.body, got.headers)["data"]["instance_id"] == instance_id
    path = f"{tenant.path}/instances/{instance_id}/events?types=instance.paused.v1"
    address = ("127.0.0.1", int(served.base_url.rpartition(":")[2]))
    with Stream(address, path, tenant.key, events.FIRST) as stream:
        assert stream.begin().next() == json.loads(got.body)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--forward-to"),
        (["--forward-to", "localhost:3000"], "not an http or https address: 'localhost:3000'"),
        (
            ["--forward-to", "http://localhost:3000/", "--secret", CUT],
            "--secret: a secret is whsec_ and the Base64 text of 24 to 64 bytes",
        ),
    ],
    ids=["no URL", "not a URL", "not a secret"],
)
def test_what_cannot_be_used_is_refused_before_anything_is_sent(
    words: list[str], told: str, cli: Cli, folder: Path
) -> None:
    ran = cli("webhooks", "listen", *words)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert CUT not in ran.err


def test_a_pattern_that_matches_nothing_is_told_with_what_there_is(
    served: Served, tenant: Tenant, folder: Path
) -> None:
    words = ("--forward-to", "http://localhost:3000/", "--types", "instances.*")
    with listening(served, tenant, folder, *words) as process:
        assert process.stderr is not None
        assert process.wait(DEADLINE_S) == 6
        assert "--types: 'instances.*' matches no kind of event" in process.stderr.read()


def test_its_help_has_examples_and_it_stands_among_the_commands(cli: Cli, folder: Path) -> None:
    assert " listen " in cli("webhooks", "--help").out
    told = cli("webhooks", "listen", "--help").out
    assert told.count("menagerie webhooks listen --forward-to http://localhost:3000/hook") == 3
