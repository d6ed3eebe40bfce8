"""One instance through its whole life, with a real engine, over the real gateway."""

import json
import os
from dataclasses import replace
from typing import Any

import httpx
import pyotp
import pytest
import redis

from contract_tests.cell.rig import until
from contract_tests.end_to_end.engine_clients import connect
from contract_tests.end_to_end.installation import (
    Installation,
    order,
    place,
    query,
    reveal,
    wait_for,
)
from contract_tests.end_to_end.test_engines import place_of, read
from menagerie.settings import GATEWAY_PROCESSES


@pytest.fixture
def path(installation: Installation) -> str:
    return f"/v1/orgs/{installation.endpoints['org_id']}"


def events(installation: Installation, instance_id: str) -> list[str]:
    """The kinds of events of an instance, in order, as its webhooks and streams will see them."""
    import sqlite3  # noqa: PLC0415 -- the outbox has no operation of its own yet

    with sqlite3.connect(f"file:{installation.home / 'menagerie.db'}?mode=ro", uri=True) as db:
        rows = db.execute(
            "SELECT type FROM events WHERE instance_id = ? ORDER BY id", (instance_id,)
        )
        return [row[0] for row in rows]


def rows(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()["rows"]


@pytest.mark.nightly
def test_each_cpu_has_a_process_of_the_gateway(installation: Installation) -> None:
    described = json.loads((installation.home / "cell" / "run" / "gateway.json").read_bytes())
    assert len(described["workers"]) == min(GATEWAY_PROCESSES, len(os.sched_getaffinity(0)))


def test_an_instance_lives_and_is_erased(installation: Installation, path: str) -> None:
    made = order(installation, engine="valkey", name="whole-life", size="s0")
    instance = f"{path}/instances/{made['id']}"
    place = place_of(installation, made["id"])
    assert place.host == made["host"]
    with connect("valkey", place) as session:
        session.write([1])

    with installation.api() as api:
        assert api.post(f"{instance}/actions/pause").status_code == 202
        wait_for(installation, made["id"], "paused")
        with pytest.raises(redis.RedisError, match="paused"):
            read("valkey", place)
        again = api.post(f"{instance}/actions/pause")
        assert again.status_code == 409
        assert "paused" in again.json()["detail"]

        assert api.post(f"{instance}/actions/resume").status_code == 202
        wait_for(installation, made["id"], "running")
        assert read("valkey", place) == [1]

        changed = api.patch(instance, json={"size": "s1"})
        assert changed.status_code in (200, 202), changed.text
        wait_for(installation, made["id"], "running")
        changes = api.get(f"{instance}/changes").json()["items"]
        assert [(one["kind"], one["new"]) for one in changes] == [("size", "s1")]
        assert read("valkey", place) == [1]

        assert api.delete(instance).status_code == 202
        gone = wait_for(installation, made["id"], "deleted")
        assert gone["purge_after"]
        assert api.post(f"{instance}/actions/undelete").status_code == 202
        wait_for(installation, made["id"], "running")
        assert read("valkey", place) == [1]

        assert api.delete(instance).status_code == 202
        wait_for(installation, made["id"], "deleted")
        assert api.post(f"{instance}/actions/erase").status_code == 202
        wait_for(installation, made["id"], "erased")
        assert not left_of(installation, made["id"])
    assert events(installation, made["id"]) == [
        "instance.requested.v1",
        "instance.ready.v1",
        "instance.paused.v1",
        "instance.resumed.v1",
        *("backup.completed.v1", "instance.resized.v1"),
        "instance.deleted.v1",
        "instance.resumed.v1",
        "instance.deleted.v1",
        "instance.deleted.v1",
    ]


def left_of(installation: Installation, instance_id: str) -> list[str]:
    """What the cell has of it, looked for among folders that come and go with other instances."""
    return [
        name
        for _, folders, files in os.walk(installation.home / "cell")
        for name in (*folders, *files)
        if instance_id in name
    ]


@pytest.fixture(scope="module")
def made(installation: Installation) -> dict[str, Any]:
    """Whose passwords and one-time URLs are tried; it stays as it is."""
    return order(installation, engine="valkey")


def test_both_passwords_work_after_a_rotation(
    installation: Installation, path: str, made: dict[str, Any]
) -> None:
    before = place_of(installation, made["id"])
    with installation.api() as api, installation.public() as public:
        url = api.post(f"{path}/instances/{made['id']}/credentials/rotate").json()["url"]
        answer = public.post(url)
        assert answer.status_code == 200, answer.text
        assert public.post(url).status_code == 410
    after = answer.json()
    assert after["password"] != before.credential["password"]
    for password in (before.credential["password"], after["password"]):
        credential = before.credential | {"password": password}
        assert read("valkey", replace(before, credential=credential)) == []
    wrong = before.credential | {"password": "wrong"}
    with pytest.raises(redis.AuthenticationError):
        read("valkey", replace(before, credential=wrong))


def test_a_one_time_url_works_once(
    installation: Installation, path: str, made: dict[str, Any]
) -> None:
    with installation.api() as api, installation.public() as public:
        url = api.post(f"{path}/instances/{made['id']}/credentials/reveal").json()["url"]
        assert public.post(url).status_code == 405
        assert public.get(url).status_code == 200
        assert public.get(url).status_code == 410
        altered = url[:-4] + ("AAAA" if not url.endswith("AAAA") else "BBBB")
        assert public.get(altered).status_code == 403


def test_closing_an_organization_takes_a_second_factor(installation: Installation) -> None:
    with installation.api(session=True) as api:
        made = api.post("/v1/orgs", json={"name": "Short lived"})
        assert made.status_code == 201, made.text
        org = f"/v1/orgs/{made.json()['id']}"
        refused = api.post(f"{org}/actions/close", json={"erase_everything": True})
        assert (refused.status_code, refused.json()["code"]) == (403, "mfa_required")

        enrolled = api.post("/v1/me/totp", json={})
        assert enrolled.status_code == 201, enrolled.text
        code = pyotp.TOTP(enrolled.json()["secret"]).now()
        assert api.post("/v1/me/totp/actions/confirm", json={"code": code}).is_success
        closed = api.post(f"{org}/actions/close", json={"erase_everything": True})
        assert closed.status_code == 202, closed.text
        assert api.delete("/v1/me/totp").status_code == 204


@pytest.mark.nightly
def test_an_idle_instance_of_the_free_plan_pauses_and_wakes(
    fresh: Any,
) -> None:
    installation = fresh(MENAGERIE_IDLE_PAUSE_S="3", MENAGERIE_FIRST_ORG_PLAN="free")
    installation.start()
    instance_id = place(installation, size="f0")
    # Where the machine stalls it is asleep again before we look.
    wait_for(installation, instance_id, "running", "paused")
    credential = reveal(installation, instance_id)
    assert rows(query(installation, credential, "CREATE TABLE t AS SELECT 5 AS n")) == []
    paused = wait_for(installation, instance_id, "paused")
    assert paused["paused_by"] == "idle"

    def is_seen_awake() -> bool:
        # It sleeps less long after a question than the reconciler takes to look at it.
        assert rows(query(installation, credential, "SELECT n FROM t")) == [[5]]
        with installation.api() as api:
            path = f"/v1/orgs/{installation.endpoints['org_id']}/instances/{instance_id}"
            found = api.get(path, params={"wait_for": "running", "timeout_s": 1}).json()
        return bool(found["status"] == "running")

    until(is_seen_awake, "it is seen to run while it is asked")
    kinds = events(installation, instance_id)
    assert kinds[:4] == [
        "instance.requested.v1",
        "instance.ready.v1",
        "instance.paused.v1",
        "instance.resumed.v1",
    ]
