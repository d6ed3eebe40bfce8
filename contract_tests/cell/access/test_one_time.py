"""One-time URLs: what they give, once, and what is refused."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import jwt
import pytest
import redis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contract_tests.cell.rig import Rig, _base64url, until


@pytest.fixture(scope="module")
def instance_id(shared_rig: Rig) -> str:
    return shared_rig.make()


def status(rig: Rig, method: str, path: str) -> tuple[int, str]:
    with rig.client() as http:
        answer = http.request(method, path)
    body = answer.json() if answer.headers["content-type"].endswith("json") else {}
    return answer.status_code, body.get("code", "")


def test_a_revealed_credential_opens_the_instance(shared_rig: Rig, instance_id: str) -> None:
    found = shared_rig.reveal(instance_id)
    assert found["uri"] == f"https://app:{found['password']}@{found['host']}:{found['port']}"
    assert shared_rig.query(instance_id, found["password"], "SELECT 1").status_code == 200
    assert shared_rig.query(instance_id, "wrong", "SELECT 1").status_code == 401
    assert shared_rig.reveal(instance_id) == found


def test_a_url_fetched_a_hundred_times_at_once_gives_one_answer(
    shared_rig: Rig, instance_id: str
) -> None:
    path = f"/v1/reveal/{shared_rig.token(instance_id, 'reveal')}"
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: status(shared_rig, "GET", path), range(100)))
    assert sorted(answers) == [(200, "")] + [(410, "used")] * 99


def test_an_expired_url_is_gone(shared_rig: Rig, instance_id: str) -> None:
    token = shared_rig.token(instance_id, "reveal", ttl_s=-1)
    assert status(shared_rig, "GET", f"/v1/reveal/{token}") == (410, "expired")


def respelled(signature: str) -> str:
    """The same 64 bytes, told by another last character: four of its six bits mean nothing."""
    last = {"A": "B", "Q": "R", "g": "h", "w": "x"}[signature[-1]]
    return signature[:-1] + last


def test_an_altered_url_is_refused(shared_rig: Rig, instance_id: str) -> None:
    token = shared_rig.token(instance_id, "reveal")
    signed, _, signature = token.rpartition(".")
    header, claims = signed.split(".")
    nowhere = {"v": 1, "instance_id": instance_id, "action": "reveal", "jti": "j", "exp": 2**40}
    wanted = {**nowhere, "aud": shared_rig.cell_id}
    longer = _base64url(json.dumps(wanted).encode())
    public = shared_rig.key.public_key().public_bytes_raw()
    stranger = Rig(shared_rig.home, key=Ed25519PrivateKey.generate())
    for altered in (
        f"{header}.{longer}.{signature}",
        jwt.encode(wanted, "", algorithm="none"),
        jwt.encode(wanted, public, algorithm="HS256"),
        f"{claims}.{signature}",
        f"{signed}.{_base64url(b'0' * 64)}",
        f"{signed}.{signature}==",
        f"{signed}.{respelled(signature)}",
        signed,
        f"{signed}.",
        "nothing",
        stranger.token(instance_id, "reveal"),
        shared_rig.token(instance_id, "rotate"),
        shared_rig.token(instance_id, "reveal", v=2),
        shared_rig.token(instance_id, "reveal", aud="cell_other"),
        jwt.encode(nowhere, shared_rig.key, algorithm="EdDSA"),
    ):
        assert status(shared_rig, "GET", f"/v1/reveal/{altered}") == (403, "bad_token")
    assert status(shared_rig, "GET", f"/v1/reveal/{token}")[0] == 200


def test_a_rotation_ends_the_urls_that_were_signed_before_it(light_rig: Rig) -> None:
    instance_id = light_rig.make()
    other_id = light_rig.make()
    methods = {"reveal": "GET", "rotate": "POST", "logs": "GET", "console": "GET"}

    def signed(action: str, whose: str = instance_id) -> str:
        return f"/v1/{action}/{light_rig.token(whose, action, iat=time.time())}"

    before = [(methods[action], signed(action)) for action in methods]
    others = signed("reveal", other_id)
    assert status(light_rig, "POST", signed("rotate"))[0] == 200
    for method, path in before:
        assert status(light_rig, method, path) == (410, "rotated")
    assert status(light_rig, "GET", others)[0] == 200
    for action in ("reveal", "rotate", "reveal"):
        assert status(light_rig, methods[action], signed(action))[0] == 200


def test_another_method_neither_answers_nor_uses_up(shared_rig: Rig, instance_id: str) -> None:
    path = f"/v1/reveal/{shared_rig.token(instance_id, 'reveal')}"
    with shared_rig.client() as http:
        for method in ("POST", "PUT", "DELETE", "PATCH", "HEAD"):
            assert http.request(method, path).status_code == 405
        assert http.options(path).status_code == 204
    assert status(shared_rig, "GET", path)[0] == 200


def test_a_url_without_an_instance_is_not_used_up_in_vain(shared_rig: Rig) -> None:
    token = shared_rig.token("inst_01JD0000000000000000000000", "reveal")
    assert status(shared_rig, "GET", f"/v1/reveal/{token}")[0] == 404


def test_logs_are_streamed_once_and_followed(shared_rig: Rig, instance_id: str) -> None:
    token = shared_rig.token(instance_id, "logs")
    path = f"/v1/logs/{token}"
    with shared_rig.client() as http:
        told = http.get(path, params={"tail_lines": 5})
        assert told.status_code == 200
        assert told.headers["content-type"] == "text/plain; charset=utf-8"
        assert http.get(path).status_code == 410
    token = shared_rig.token(instance_id, "logs")
    log = shared_rig.home / "instances" / instance_id / "log" / "engine.log"
    with (
        shared_rig.client() as http,
        http.stream("GET", f"/v1/logs/{token}?follow=true&tail_lines=0") as stream,
    ):
        assert stream.status_code == 200
        with log.open("ab") as writing:
            writing.write(b"a line written later\n")
        assert "a line written later" in next(stream.iter_lines())


def test_a_rotation_keeps_the_old_credential_for_the_overlap(light_rig: Rig) -> None:
    instance_id = light_rig.make(rotation_overlap_s=86400)
    first = light_rig.reveal(instance_id)["password"]
    rotated = light_rig.rotate(instance_id)
    second = rotated["password"]
    assert second != first
    seen = light_rig.observe(instance_id)["credentials"]
    assert (seen["generation"], seen["overlap_until"]) == (2, rotated["overlap_until"])
    assert works(light_rig, instance_id, first)
    assert works(light_rig, instance_id, second)

    # A shorter overlap ends all that came before, also what had a longer one.
    light_rig.put(instance_id, rotation_overlap_s=0.3)
    third = light_rig.rotate(instance_id)["password"]
    until(lambda: not works(light_rig, instance_id, first), "the first credential ends")
    until(lambda: not works(light_rig, instance_id, second), "the second credential ends")
    assert works(light_rig, instance_id, third)
    assert light_rig.reveal(instance_id)["password"] == third
    # The engine hears of an end first; only then is it put down.
    ended = {"generation": 3, "overlap_until": None}
    until(lambda: light_rig.observe(instance_id)["credentials"] == ended, "no overlap is left")


def test_a_url_says_how_long_former_credentials_work(light_rig: Rig) -> None:
    """The service's setting, or what its owner asked for; it counts more than the instance's."""
    instance_id = light_rig.make(rotation_overlap_s=86400)
    first = light_rig.reveal(instance_id)["password"]
    second = light_rig.rotate(instance_id, overlap_s=3600)["password"]
    assert works(light_rig, instance_id, first)
    # Who had one of a rotation before this one has to go as well.
    third = light_rig.rotate(instance_id, overlap_s=0)["password"]
    assert not works(light_rig, instance_id, first)
    assert not works(light_rig, instance_id, second)
    assert works(light_rig, instance_id, third)
    until = light_rig.rotate(instance_id, overlap_s=3600)["overlap_until"]
    assert 3500 < datetime.fromisoformat(until).timestamp() - time.time() <= 3601
    assert works(light_rig, instance_id, third)


def works(rig: Rig, instance_id: str, password: str) -> bool:
    try:
        rig.numbers(instance_id, password)
    except redis.ConnectionError:  # refused, or cut off as it ended at that moment
        return False
    return True
