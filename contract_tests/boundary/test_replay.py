"""Idempotency-Key: one effect, one answer, for 24 hours."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import event, func, select, text
from sqlalchemy.orm import Session

from contract_tests.boundary.small_api import MakeSmallApi, SmallApi
from contract_tests.databases import Databases
from control.boundary import replay
from control.boundary.replay import ReplayKey, Replays, canonical
from control.sealing import Sealer
from control.settings import ControlSettings
from specserver import Reply
from storage import replays
from storage.access.projects import Project
from storage.access.users import User
from storage.columns import Record
from storage.database import Database
from storage.events.audit import AuditEntry
from storage.replays import Replay

BODY = {"name": "Shop", "slug": "shop"}
# What they need is imported once, in a process that has no threads and forks them.
CHILDREN = multiprocessing.get_context("forkserver")
CHILDREN.set_forkserver_preload(["contract_tests.boundary.small_api"])


def keyed(key: str, body: Any = None, **headers: str) -> dict[str, Any]:
    return {"headers": {"Idempotency-Key": key, **headers}, "json": BODY if body is None else body}


def count(api: SmallApi, record: type[Project | Replay | AuditEntry]) -> int:
    with api.database.read() as db:
        return int(db.scalar(select(func.count()).select_from(record)) or 0)


def shop(api: SmallApi) -> tuple[str, str]:
    """The path of an org's projects, and a token that may make some."""
    ann = api.person()
    return f"/v1/orgs/{api.org((ann, 'owner'))}/projects", ann.session


def test_a_retry_gets_the_first_answer_and_does_nothing(api: SmallApi) -> None:
    path, token = shop(api)
    first = api.post(path, token, **keyed("k1"))
    again = api.post(path, token, **keyed("k1"))
    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()
    assert first.headers["Location"] == again.headers["Location"]
    assert first.headers["Content-Type"] == again.headers["Content-Type"]
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert first.headers["X-Request-Id"] != again.headers["X-Request-Id"]
    assert count(api, Project) == count(api, AuditEntry) == 1


def test_the_same_key_sent_100_times_at_once_makes_one(make_api: MakeSmallApi) -> None:
    """Two replicas; on SQLite the file's own lock is between them."""
    first, second = make_api(), make_api()
    path, token = shop(first)
    request = ("POST", path, token, keyed("k1"))
    with ThreadPoolExecutor(2) as replicas:
        halves = list(replicas.map(lambda api: api.together([request] * 50), (first, second)))
    answers = [*halves[0], *halves[1]]
    kinds = {(one.status_code, one.json().get("code")) for one in answers}
    assert kinds <= {(201, None), (409, "idempotency_in_flight")}
    assert {one.headers["Retry-After"] for one in answers if one.status_code == 409} <= {"1"}
    assert len({one.json()["id"] for one in answers if one.status_code == 201}) == 1
    assert count(first, Project) == 1


def test_what_is_in_flight_is_409_and_then_the_answer(databases: Databases) -> None:
    """A request holds its key's lock while it works; here the test holds it.

    On PostgreSQL only: on SQLite the second request waits for the one writer.
    """
    api = SmallApi(databases.migrated("postgresql"))
    path, token = shop(api)
    api.post(path, token, **keyed("k1"))
    locks: list[Any] = []
    with api.database.write() as db:
        event.listen(api.database.engine, "before_cursor_execute", remember(locks))
        api.post(path, token, **keyed("k1"))
        (number,) = locks
        db.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": number})
        refused = api.post(path, token, **keyed("k1"))
    assert (refused.status_code, refused.json()["code"]) == (409, "idempotency_in_flight")
    assert refused.headers["Retry-After"] == "1"
    assert api.post(path, token, **keyed("k1")).status_code == 201
    api.close()


def remember(locks: list[Any]) -> Any:
    def listener(_db: Any, _cursor: Any, statement: str, values: Any, *_rest: Any) -> None:
        if "pg_try_advisory_xact_lock" in statement and not locks:
            locks.append(values["number"])

    return listener


def test_the_same_key_with_another_request_is_422(api: SmallApi) -> None:
    path, token = shop(api)
    assert api.post(path, token, **keyed("k1")).status_code == 201
    for changed in (
        api.post(path, token, **keyed("k1", {"name": "Shop", "slug": "other"})),
        api.post(path + "?dry_run=true", token, **keyed("k1")),
    ):
        assert (changed.status_code, changed.json()["code"]) == (422, "idempotency_key_reused")
        assert changed.json()["detail"] == "the Idempotency-Key belongs to another request"
        assert changed.json()["errors"] == [
            {
                "parameter": "Idempotency-Key",
                "keyword": "unique",
                "message": "was used for another request in the last 24 hours; use a new one",
            }
        ]
    assert count(api, Project) == 1


def test_a_reformatted_body_is_the_same_request(api: SmallApi) -> None:
    path, token = shop(api)
    api.post(path, token, **keyed("k1"))
    headers = {"Idempotency-Key": "k1", "Content-Type": "application/json"}
    body = b'{ "slug": "shop",\n "name": "\\u0053hop" }'
    assert api.post(path, token, headers=headers, content=body).status_code == 201
    assert canonical(b'{"b": 1, "a": [2]}') == b'{"a":[2],"b":1}'
    assert canonical(b"not json") == b"not json"


def test_another_org_and_another_operation_are_independent(api: SmallApi) -> None:
    path, token = shop(api)
    other_path, other_token = shop(api)
    answers = [
        api.post(path, token, **keyed("k1")),
        api.post(other_path, other_token, **keyed("k1")),
    ]
    key_path = path.replace("projects", "api-keys")
    answers.append(api.post(key_path, token, **keyed("k1", {"name": "n"})))
    assert [one.status_code for one in answers] == [201, 201, 201]
    assert len({one.json()["id"] for one in answers}) == 3


def test_nobody_reads_the_answer_given_to_another(api: SmallApi) -> None:
    ann, bob = api.person(), api.person()
    org = api.org((ann, "owner"), (bob, "developer"))
    path, key = f"/v1/orgs/{org}/api-keys", api.key(org, ann)
    api.post(path, ann.session, **keyed("k1", {"name": "n"}))
    for token in (bob.session, key):
        answer = api.post(path, token, **keyed("k1", {"name": "n"}))
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
        assert "mk_live_" not in answer.text


def test_a_new_session_of_the_same_user_may_retry(api: SmallApi) -> None:
    ann = api.person()
    path = f"/v1/orgs/{api.org((ann, 'owner'))}/projects"
    first = api.post(path, ann.session, **keyed("k1"))
    assert api.post(path, api.session(ann.id), **keyed("k1")).json() == first.json()


@pytest.mark.parametrize("key", ["", " ", "a b", "é".encode("latin-1"), "x" * 256, "a\tb"])
def test_a_key_is_1_to_255_visible_ascii_characters(api: SmallApi, key: str | bytes) -> None:
    path, token = shop(api)
    answer = api.post(path, token, headers={"Idempotency-Key": key}, json=BODY)
    assert answer.status_code == 422
    assert answer.json()["detail"] == "the Idempotency-Key is not valid"
    assert answer.json()["errors"] == [
        {
            "parameter": "Idempotency-Key",
            "keyword": "pattern",
            "message": "must be 1 to 255 visible ASCII characters",
        }
    ]
    assert api.post(path, token, **keyed("x" * 255)).status_code == 201


@pytest.mark.parametrize(
    ("then", "status"),
    [("crash", 500), ("refuse", 402), ("answer_400", 400), ("answer_409", 409)],
)
def test_what_failed_left_nothing_and_may_be_asked_again(
    api: SmallApi, then: str, status: int
) -> None:
    path, token = shop(api)
    body = {**BODY, "then": then}
    assert api.post(path, token, **keyed("k1", body)).status_code == status
    assert count(api, Project) == count(api, Replay) == count(api, AuditEntry) == 0
    assert api.post(path, token, **keyed("k1")).status_code == 201


def test_an_answer_replays_for_24_hours_and_not_longer(make_api: MakeSmallApi) -> None:
    api = make_api()
    path, token = shop(api)
    first = api.post(path, token, **keyed("k1"))
    long_lived = api.session(first_user(api), ttl=timedelta(days=10))
    for offset_s, status in ((86_340, 201), (86_460, 409)):
        later = make_api(clock_offset_s=offset_s)
        answer = later.post(path, long_lived, **keyed("k1"))
        assert answer.status_code == status, answer.text
        replayed = answer.headers.get("Idempotency-Replayed") == "true"
        assert replayed == (status == 201)
    assert first.status_code == 201


def test_a_key_can_be_used_anew_when_its_window_is_over(make_api: MakeSmallApi) -> None:
    api = make_api()
    path, _ = shop(api)
    token = api.session(first_user(api), ttl=timedelta(days=10))
    api.post(path, token, **keyed("k1"))
    later = make_api(clock_offset_s=86_460)
    other = {"name": "Other", "slug": "other"}
    made = later.post(path, token, **keyed("k1", other))
    assert later.post(path, token, **keyed("k1", other)).json() == made.json()
    assert count(api, Replay) == 1


def test_an_answer_that_is_no_json_is_repeated_as_it_was(database_url: str) -> None:
    database = Database(database_url)
    kept = Replays(Sealer(b"s" * 32), ControlSettings(cursor_key=b"k" * 32))
    key = ReplayKey("org_1", "things.make", "k1", "of what was asked")
    with database.write() as db:
        now = database.now(db)
        made = Reply(201, "made", {"Location": "/v1/things/1"}, "text/plain")
        kept.keep(db, key, now, made)
        again = kept.answer(db, key, now)
    assert again is not None
    assert (again.status, again.encode(), again.media_type) == (201, b"made", "text/plain")
    assert again.headers == {"Location": "/v1/things/1", "Idempotency-Replayed": "true"}
    database.dispose()


def first_user(api: SmallApi) -> str:
    with api.database.read() as db:
        return str(db.scalar(select(User.id)))


def test_secrets_replay_and_stand_in_the_database_in_no_readable_form(
    api: SmallApi, database_url: str
) -> None:
    ann = api.person()
    path = f"/v1/orgs/{api.org((ann, 'owner'))}/api-keys"
    first = api.post(path, ann.session, **keyed("k1", {"name": "n"}))
    assert api.post(path, ann.session, **keyed("k1", {"name": "n"})).json() == first.json()
    password = {"email": "ann@example.org", "password": "right"}
    signed_in = api.post("/v1/sessions", **keyed("k1", password))
    assert signed_in.status_code == 201
    assert api.post("/v1/sessions", **keyed("k1", password)).json() == signed_in.json()
    stored = everything(api)
    for secret in (first.json()["key"], signed_in.json()["token"]):
        assert secret.encode() not in stored
        assert secret[12:].encode() not in stored


def everything(api: SmallApi) -> bytes:
    """Every value of every row."""
    with api.database.read() as db:
        rows = [row for table in Record.metadata.sorted_tables for row in db.execute(select(table))]
    return b"\n".join(
        value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row
    )


def test_sign_ins_of_one_address_do_not_answer_those_of_another(api: SmallApi) -> None:
    request = keyed("k1", {"email": "ann@example.org", "password": "right"})
    first = api.post("/v1/sessions", **request)
    elsewhere = api.post("/v1/sessions", **request, peer="198.51.100.1")
    assert first.json() != elsewhere.json()


def test_get_takes_no_notice(api: SmallApi) -> None:
    path, token = shop(api)
    headers = {"Idempotency-Key": "k1"}
    assert api.get(path, token, headers=headers).json()["items"] == []
    api.post(path, token, json=BODY)
    assert len(api.get(path, token, headers=headers).json()["items"]) == 1


def die_at_commit(url: str, path: str, token: str, moment: str) -> None:
    """Makes the request in a process that is killed at the commit of the project it makes."""
    api = SmallApi(url)

    def mark(db: Session, _flush: Any) -> None:
        if any(isinstance(record, Project) for record in db.new):
            db.info["makes a project"] = True

    def kill(db: Session) -> None:
        if db.info.get("makes a project"):
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Session, "after_flush", mark)
    event.listen(Session, moment, kill)
    api.post(path, token, **keyed("k1"))


def die_at_statement(url: str, path: str, token: str, last: int) -> None:
    """Makes the request in a process that is killed at its nth statement or commit."""
    api = SmallApi(url)
    left = iter(range(last))

    def kill(*_event: Any) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    for moment in ("before_cursor_execute", "commit"):
        event.listen(api.database.engine, moment, kill)
    api.post(path, token, **keyed("k1"))
    os._exit(0)


def exit_code(target: Callable[..., None], *args: Any) -> int | None:
    child = CHILDREN.Process(target=target, args=args)
    child.start()
    child.join(60)
    return child.exitcode


def retried(api: SmallApi, path: str, token: str) -> httpx.Response:
    """The answer to whoever asks again while told that the first request is still under way.

    It is, to PostgreSQL, until that has noticed that who held the key's lock is gone.
    """
    end = time.monotonic() + 60
    while (answer := api.post(path, token, **keyed("k1"))).status_code == 409:
        assert answer.json()["code"] == "idempotency_in_flight"
        assert time.monotonic() < end, "the lock of a killed process is never let go"
        time.sleep(0.02)
    return answer


@pytest.mark.parametrize(("moment", "made"), [("before_commit", 0), ("after_commit", 1)])
def test_killed_at_the_commit_a_retry_makes_exactly_one(
    api: SmallApi, database_url: str, moment: str, made: int
) -> None:
    path, token = shop(api)
    assert exit_code(die_at_commit, database_url, path, token, moment) == -signal.SIGKILL
    assert count(api, Project) == made
    answer = retried(api, path, token)
    assert answer.status_code == 201
    assert (answer.headers.get("Idempotency-Replayed") == "true") == bool(made)
    assert count(api, Project) == 1


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_killed_at_any_statement_a_retry_makes_exactly_one(
    api: SmallApi, database_url: str
) -> None:
    for last in range(100):
        path, token = shop(api)
        before = count(api, Project)
        code = exit_code(die_at_statement, database_url, path, token, last)
        assert code in (0, -signal.SIGKILL)
        assert retried(api, path, token).status_code == 201
        assert count(api, Project) == before + 1
        if code == 0:
            assert last > 5
            return
    pytest.fail("no request was let through to its end")


def test_of_large_answers_an_organization_keeps_so_much_and_no_more(
    api: SmallApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or one tenant fills the database of all, and nothing but the operator helps."""
    monkeypatch.setattr(replay, "LARGE_FROM", 1)
    path, token = shop(api)
    first = api.post(path, token, **keyed("first"))
    with api.database.read() as db:
        kept = replays.large_bytes(db, db.scalars(select(Replay.scope)).one())
    assert kept > 0
    monkeypatch.setattr(replay, "LARGE_MAX", kept + 10)
    more = {"name": "More", "slug": "more"}
    assert api.post(path, token, **keyed("second", more)).status_code == 201
    assert api.post(path, token, **keyed("first")).json() == first.json()
    lost = api.post(path, token, **keyed("second", more))
    assert (lost.status_code, lost.json()["code"]) == (409, "idempotency_answer_lost")
    assert lost.json()["detail"] == (
        "the response to this Idempotency-Key was too large to keep with the others of the last"
        " 24 hours; the request took effect and is not repeated"
    )
    changed = api.post(path, token, **keyed("second"))
    assert (changed.status_code, changed.json()["code"]) == (422, "idempotency_key_reused")
    assert count(api, Project) == 2
    other, other_token = shop(api)
    assert api.post(other, other_token, **keyed("third")).status_code == 201
    with api.database.read() as db:
        rows = db.scalars(select(Replay).order_by(Replay.key)).all()
    assert [row.body_sealed is None for row in rows] == [False, True, False]
