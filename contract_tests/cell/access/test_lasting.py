"""Consoles and followed logs: the cell tells who has any, and ends those it is told to."""

import threading
import time
from pathlib import Path

import httpx

from cell.database import Database
from contract_tests.cell.console.test_console import ENDLESS, Browser
from contract_tests.cell.rig import Rig, until


def test_a_console_and_a_followed_log_end_with_the_right_to_them(shared_rig: Rig) -> None:
    instance_id = shared_rig.make()
    path = f"/v1/instances/{instance_id}/actions/end-access"

    def access() -> list[dict[str, str]]:
        found = shared_rig.get("/v1/instances").json()["items"]
        return next(list(each["access"]) for each in found if each["instance_id"] == instance_id)

    assert access() == []
    browsers = [Browser(shared_rig, instance_id, holder) for holder in ("ses_a", "key_b")]
    for each in browsers:
        each.load()
    token = shared_rig.token(instance_id, "logs", holder="key_b")
    answers: list[httpx.Response] = []
    working = threading.Thread(target=lambda: answers.append(browsers[1].run_beside(ENDLESS)))
    with (
        shared_rig.client() as http,
        http.stream("GET", f"/v1/logs/{token}?follow=true&tail_lines=0") as stream,
    ):
        working.start()
        until(browsers[1].is_busy, "the statement runs")
        wanted = {("ses_a", "console"), ("key_b", "console"), ("key_b", "logs")}
        assert {(each["holder"], each["kind"]) for each in access()} == wanted
        assert shared_rig.act("POST", path, {"holders": ["key_b"]}).status_code == 204
        assert list(stream.iter_lines()) == []
    working.join()
    assert "canceled" in answers[0].text or "stopped" in answers[0].text, answers[0].text
    assert browsers[1].load().status_code == 401
    assert browsers[0].load().status_code == 200
    assert access() == [{"holder": "ses_a", "kind": "console"}]
    for each in browsers:
        each.http.close()


def test_a_url_that_was_not_used_ends_with_the_right_to_it(light_rig: Rig) -> None:
    instance_id = light_rig.make()
    path = f"/v1/instances/{instance_id}/actions/end-access"
    ended, other = (light_rig.token(instance_id, "reveal", jti=jti) for jti in ("a-1", "b-1"))
    unused = {"jti": "a-1", "expires_at": time.time() + 60}
    for _ in range(2):
        assert light_rig.act("POST", path, {"holders": [], "urls": [unused]}).status_code == 204
    with light_rig.client() as http:
        refused = http.get(f"/v1/reveal/{ended}")
        assert (refused.status_code, refused.json()["code"]) == (410, "used")
        assert "access of whoever requested it has ended" in refused.json()["detail"]
        assert http.get(f"/v1/reveal/{other}").status_code == 200


def test_sessions_of_a_former_version_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "cell.db"
    former = Database(file)
    for added in ("holder", "person"):
        former.write(f"ALTER TABLE console_sessions DROP COLUMN {added}")
    former.write("INSERT INTO console_sessions VALUES ('k', 'inst_a', 'a', 1, 2)")
    former.close()
    assert Database(file).rows("SELECT key, holder, person FROM console_sessions") == [
        ("k", "", "")
    ]
