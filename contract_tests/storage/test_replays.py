"""What is kept of responses: found by its key, counted by its scope, and forgotten in time."""

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from contract_tests.storage.query_plans import query_plans
from storage import replays
from storage.database import Database

TICK = timedelta(milliseconds=1)


def keep(db: Session, key: str, expires_at: datetime, *, scope: str = "a", **values: int) -> None:
    replays.keep(
        db,
        scope=scope,
        operation="things.make",
        key=key,
        body_sha256="hash",
        state="done",
        status=201,
        headers={"Location": "/v1/things/1"},
        body_sealed=b"sealed",
        expires_at=expires_at,
        **values,
    )


def keys(db: Session, *asked: str, scope: str = "a") -> list[str]:
    return [key for key in asked if replays.find(db, scope, "things.make", key) is not None]


def test_a_response_is_found_by_its_scope_its_operation_and_its_key(database: Database) -> None:
    with database.write() as db:
        ends = database.now(db)
        keep(db, "k", ends)
        keep(db, "k", ends, scope="b", large_bytes=5)
    with database.read() as db:
        found = replays.find(db, "a", "things.make", "k")
        assert found is not None
        assert (found.status, found.headers) == (201, {"Location": "/v1/things/1"})
        assert (found.body_sealed, found.large_bytes) == (b"sealed", None)
        assert (found.state, found.body_sha256, found.expires_at) == ("done", "hash", ends)
        assert replays.find(db, "a", "things.other", "k") is None
        assert keys(db, "k", "other") == ["k"]
        assert keys(db, "k", scope="c") == []


def test_large_responses_are_counted_for_each_scope(database: Database) -> None:
    with database.write() as db:
        ends = database.now(db)
        assert replays.large_bytes(db, "a") == 0
        for number, size in enumerate((3, 4)):
            keep(db, f"large {number}", ends, large_bytes=size)
        keep(db, "small", ends)
        keep(db, "large", ends, scope="b", large_bytes=100)
        with query_plans(db) as plans:
            assert replays.large_bytes(db, "a") == 7
        assert all("ix_replays_large" in step for step in plans)


def test_the_latest_of_each_scope_are_kept(database: Database) -> None:
    with database.write() as db:
        now = database.now(db)
        for number in range(4):
            keep(db, f"k{number}", now + number * TICK)
            keep(db, f"k{number}", now + (9 + number) * TICK, scope="b")
        keep(db, "k0", now, scope="c")
        assert replays.forget_surplus(db, 4, 10) == 0
        assert replays.forget_surplus(db, 3, 10) == 2
        for scope in ("a", "b"):
            assert keys(db, "k0", "k1", "k2", "k3", scope=scope) == ["k1", "k2", "k3"]
        assert keys(db, "k0", scope="c") == ["k0"]
        assert [replays.forget_surplus(db, 1, 3) for _ in range(3)] == [3, 1, 0]
        for scope in ("a", "b"):
            assert keys(db, "k1", "k2", "k3", scope=scope) == ["k3"]


def test_what_is_over_is_forgotten(database: Database) -> None:
    with database.write() as db:
        ends = database.now(db)
        keep(db, "k", ends)
        keep(db, "later", ends + TICK)
        assert replays.forget_expired(db, ends, 10) == 0
        assert replays.forget_expired(db, ends + TICK, 10) == 1
        assert keys(db, "k", "later") == ["later"]
        keep(db, "other", ends)
        keep(db, "another", ends)
        assert [replays.forget_expired(db, ends + TICK, 1) for _ in range(3)] == [1, 1, 0]
