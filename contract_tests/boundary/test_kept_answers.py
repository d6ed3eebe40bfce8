"""What is kept of an answer for a repetition, for how long, and what is said where it is lost."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from contract_tests.boundary.small_api import SmallApi
from control.boundary import replay
from control.boundary.replay import ReplayKey, Replays
from control.sealing import Sealer
from control.settings import ControlSettings
from specserver import Conflict, Reply
from storage.database import Database
from storage.replays import Replay

SETTINGS = ControlSettings(cursor_key=b"k" * 32)
KEY = ReplayKey("org_1", "things.make", "k1", "of what was asked")
HELD = ReplayKey("org_1", "things.make", "k2", "of what was asked", "ses_1")


@pytest.fixture
def db(database_url: str) -> Iterator[Session]:
    database = Database(database_url)
    with database.write() as db:
        yield db
    database.dispose()


@pytest.fixture
def kept() -> Replays:
    return Replays(Sealer(b"s" * 32), SETTINGS)


AT = datetime.fromisoformat("2026-01-01T12:00:00+00:00")
MADE = {"id": "thing_1"}


def row(db: Session, key: ReplayKey = KEY) -> Replay:
    db.flush()
    return db.scalars(select(Replay).where(Replay.key == key.key)).one()


def test_an_answer_is_kept_as_it_was(db: Session, kept: Replays) -> None:
    kept.keep(db, KEY, AT, Reply(202, MADE, {"Location": "/v1/things/1"}))
    again = kept.seen(db, KEY, AT)
    assert again is not None
    assert (again.status, again.encode(), again.media_type) == (
        202,
        b'{"id":"thing_1"}',
        "application/json",
    )
    assert again.headers == {"Location": "/v1/things/1", "Idempotency-Replayed": "true"}
    assert row(db).state == "done"


def test_an_answer_without_a_body_has_none_again(db: Session, kept: Replays) -> None:
    kept.keep(db, KEY, AT, Reply(202, None))
    again = kept.seen(db, KEY, AT)
    assert again is not None
    assert not again.has_body


def test_an_answer_ends_at_the_moment_that_was_said(db: Session, kept: Replays) -> None:
    kept.keep(db, KEY, AT, Reply(201, MADE))
    ends_at = AT + timedelta(seconds=SETTINGS.replay_ttl_s)
    before = ends_at - timedelta(seconds=1)
    assert kept.seen(db, KEY, before) is not None
    assert kept.answer(db, KEY, before) is not None
    assert kept.seen(db, KEY, ends_at) is None
    assert kept.answer(db, KEY, ends_at) is None
    assert kept.answer(db, KEY, before) is None


LOST = "the response to this Idempotency-Key was lost"
TAKEN = "the request took effect and is not repeated"


@pytest.mark.parametrize(
    ("key", "detail"),
    [
        (KEY, f"{LOST}; {TAKEN}"),
        (HELD, f"{LOST} or was given to another session, which alone gets it again; {TAKEN}"),
    ],
)
def test_an_answer_that_cannot_be_opened_is_said_to_be_lost(
    db: Session, kept: Replays, key: ReplayKey, detail: str
) -> None:
    kept.keep(db, key, AT, Reply(201, MADE))
    with pytest.raises(Conflict) as lost:
        Replays(Sealer(b"t" * 32), SETTINGS).seen(db, key, AT)
    assert (lost.value.code, lost.value.detail) == ("idempotency_answer_lost", detail)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/orgs/{org}/projects", {"name": "n", "slug": "s"}),
        ("/v1/sessions", {"email": "ann@example.org", "password": "right"}),
    ],
)
def test_what_any_session_may_have_is_said_to_be_of_no_session(
    api: SmallApi, path: str, body: dict[str, Any]
) -> None:
    ann = api.person()
    asked = path.format(org=api.org((ann, "owner")))
    request: dict[str, Any] = {"headers": {"Idempotency-Key": "k1"}, "json": body}
    assert api.post(asked, ann.session, **request).status_code == 201
    api.boundary._replays._sealer = Sealer(b"t" * 32)
    assert api.post(asked, ann.session, **request).json()["detail"] == f"{LOST}; {TAKEN}"


def test_only_large_answers_are_counted_from_the_first_byte_that_is_too_much(
    db: Session, kept: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [ReplayKey("org_1", "things.make", f"k{number}", "x") for number in range(5)]
    kept.keep(db, keys[0], AT, Reply(201, MADE))
    assert row(db, keys[0]).large_bytes is None
    size = len(row(db, keys[0]).body_sealed or b"")
    monkeypatch.setattr(replay, "LARGE_FROM", size + 1)
    kept.keep(db, keys[1], AT, Reply(201, MADE))
    assert row(db, keys[1]).large_bytes is None
    monkeypatch.setattr(replay, "LARGE_FROM", size)
    monkeypatch.setattr(replay, "LARGE_MAX", 2 * size)
    for key in keys[2:]:
        kept.keep(db, key, AT, Reply(201, MADE))
    assert [row(db, key).large_bytes for key in keys[2:]] == [size, size, None]
    assert row(db, keys[4]).body_sealed is None
