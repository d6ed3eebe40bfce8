"""Queues of an owner who puts his own in the place of PGMQ: he harms nobody but himself."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cell.instances.queues import AT_ONCE, TURN_WITHIN_S, WITHIN_S
from contract_tests.by_day import one_in
from contract_tests.cell.queues.test_queues import Queues, make, problem
from contract_tests.cell.rig import Rig

MANY = 20_000_000
SMALL_BYTES = 10_000
METRICS = """CREATE OR REPLACE FUNCTION pgmq.metrics(queue_name text) RETURNS pgmq.metrics_result
LANGUAGE plpgsql AS $$ BEGIN %s; END $$"""
# A name of which the table's is the beginning, as names of tables are cut.
LONG = (
    "ALTER TABLE pgmq.meta RENAME TO meta_",
    f"CREATE TABLE pgmq.q_{'x' * 61} ()",
    f"""CREATE VIEW pgmq.meta AS SELECT * FROM pgmq.meta_ UNION ALL
    SELECT repeat('x', {MANY}), false, false, now()""",
    METRICS % "RETURN ROW(queue_name, 0, 0, 0, 0, now(), 0, 0)::pgmq.metrics_result",
)
READING = {"count": 1, "visibility_timeout_s": 1}


@pytest.fixture(scope="module")
def instance(shared_rig: Rig) -> Queues:
    return make(shared_rig)


@pytest.fixture
def queues(instance: Queues) -> Iterator[Queues]:
    instance.make("mine")
    yield instance
    say(instance, "DROP SCHEMA pgmq, pgmq_public, menagerie_queues CASCADE")


def say(queues: Queues, *statements: str) -> None:
    with queues.session() as owner:
        for statement in statements:
            owner.execute(statement.encode())


# Slow for what it adds by day.
@pytest.mark.nightly
def test_an_error_of_any_length_is_told_in_short(queues: Queues) -> None:
    for length, said in ((1_000_000, "xxx"), (MANY, "has more than")):
        say(queues, METRICS % f"RAISE EXCEPTION '%', repeat('x', {length})")
        answer = queues.rig.get(queues.path)
        problem(answer, 409, said)
        assert answer.json()["code"] == "refused_by_instance"
        assert len(answer.content) < SMALL_BYTES


@pytest.mark.nightly
def test_notices_without_end_are_not_waited_for(queues: Queues) -> None:
    forever = "LOOP RAISE WARNING '%', repeat('x', 100000); END LOOP"
    say(queues, METRICS % forever)
    problem(queues.rig.get(queues.path), 409, "has more than")


def test_names_of_any_length_are_no_queues(queues: Queues) -> None:
    say(queues, *LONG)
    answer = queues.rig.get(queues.path)
    assert [each["name"] for each in answer.json()["items"]] == ["mine"]
    assert len(answer.content) < SMALL_BYTES


def test_a_message_that_is_nested_too_deeply_is_named_and_not_hidden(queues: Queues) -> None:
    hidden_long = {**READING, "visibility_timeout_s": 600}
    nested = "SELECT pgmq.send('mine', (repeat('[', {0}) || repeat(']', {0}))::jsonb)"
    for depth in (201, 255, 1024, 1100):
        say(queues, "SELECT pgmq.purge_queue('mine')", nested.format(depth))
        for _ in range(2):
            answer = queues.act("POST", "/mine/actions/read", hidden_long)
            problem(answer, 409, "is nested more than 200 levels deep")
            assert answer.json()["code"] == "message_unreadable"
    say(queues, "SELECT pgmq.purge_queue('mine')", nested.format(200))
    (message,) = queues.read("mine")
    assert str(message["body"]) == "[" * 200 + "]" * 200
    # One that is sent is refused before it is stored.
    deep: list[object] = []
    for _ in range(201):
        deep = [deep]
    sent = queues.act("POST", "/mine/messages", {"messages": [{"deep": deep}]})
    problem(sent, 422, "")


# Slow for what it adds by day.
@pytest.mark.nightly
def test_a_message_of_too_many_values_is_named_and_not_hidden(queues: Queues) -> None:
    hidden_long = {"count": 100, "visibility_timeout_s": 600}
    lists = """SELECT pgmq.send('mine', jsonb_agg('[]'::jsonb))
    FROM generate_series(1, {})"""
    say(queues, lists.format(1_000_000))
    for _ in range(2):
        answer = queues.act("POST", "/mine/actions/read", hidden_long)
        problem(answer, 409, "contains more than 20,000 objects and arrays")
        assert answer.json()["code"] == "message_unreadable"
    # Of several that together have too many, those are answered that may be.
    say(queues, "SELECT pgmq.purge_queue('mine')", *[lists.format(9_000)] * 3)
    assert [len(each["body"]) for each in queues.read("mine", count=3)] == [9_000, 9_000]
    assert [len(each["body"]) for each in queues.read("mine", count=3)] == [9_000]


def test_rows_without_end_are_cut(queues: Queues) -> None:
    say(
        queues,
        "DROP FUNCTION pgmq.metrics",
        """CREATE FUNCTION pgmq.metrics(text) RETURNS SETOF pgmq.metrics_result LANGUAGE sql AS
        $$ SELECT $1, 1, 1, 1, 1, now(), 1, 1 FROM generate_series(1, 100000) $$""",
        "DROP FUNCTION pgmq.read",
        """CREATE FUNCTION pgmq.read(text, integer, integer) RETURNS SETOF pgmq.message_record
        LANGUAGE sql AS $$ SELECT n, 1, now(), now(), now(), '{}'::jsonb, NULL::jsonb
        FROM generate_series(1, 100000) n $$""",
    )
    assert list(queues.list()) == ["mine"]
    assert [each["message_id"] for each in queues.read("mine", count=2)] == [1, 2]


FORGED = (
    (METRICS % "RETURN ROW(queue_name, -1, -2, -3, -4, now(), -5, 0)::pgmq.metrics_result", 200),
    (METRICS % "RETURN NULL", 200),
    ("INSERT INTO menagerie_queues.access VALUES ('mine', '{anon,postgres,NULL}')", 200),
    ("INSERT INTO menagerie_queues.access VALUES ('mine', '{NULL}')", 200),
    ("UPDATE pgmq.meta SET created_at = 'infinity'", 200),
    ("UPDATE pgmq.meta SET created_at = '20000-01-01'", 409),
    ("ALTER TABLE pgmq.meta ALTER created_at TYPE text USING 'x'", 422),
    ("ALTER TABLE menagerie_queues.installed ALTER version TYPE text USING 'x'", 422),
    ("ALTER TABLE pgmq.meta DROP is_unlogged", 409),
)


@pytest.mark.parametrize(("forged", "status"), one_in(3, FORGED, several=True))
def test_a_list_is_never_an_error_of_ours(queues: Queues, forged: str, status: int) -> None:
    say(queues, forged)
    answer = queues.rig.get(queues.path)
    assert answer.status_code == status, answer.text


# Slow for what it adds by day.
@pytest.mark.nightly
def test_answers_that_were_changed_are_not_told(queues: Queues) -> None:
    body = {"messages": [{}], "delay_seconds": 0}
    much = "(SELECT jsonb_build_object('a', jsonb_agg('[]'::jsonb)) FROM generate_series(1, 30000))"
    for answer in ("'5'", "NULL", much, f"to_jsonb(repeat('x', {MANY}))"):
        assert queues.send("mine", {}, key="same:send")
        say(queues, f"UPDATE menagerie_queues.answers SET answer = {answer}")
        found = queues.act("POST", "/mine/messages", body, key="same:send")
        problem(found, 409)
        assert len(found.content) < SMALL_BYTES
        say(queues, "DELETE FROM menagerie_queues.answers")


def test_messages_with_numbers_of_no_queue_are_left_out(queues: Queues) -> None:
    values = "(-5, 0), (0, 0), (7, -9), (8, 0)"
    rows = f"SELECT id, n, now(), '{{}}' FROM (VALUES {values}) AS v (id, n)"
    into = "INSERT INTO pgmq.q_mine (msg_id, read_ct, vt, message) OVERRIDING SYSTEM VALUE"
    say(queues, f"{into} {rows}")
    assert [each["message_id"] for each in queues.read("mine", count=9)] == [8]


def test_messages_that_are_none_are_no_error_of_ours(queues: Queues) -> None:
    say(queues, "INSERT INTO pgmq.q_mine (vt, message) VALUES (now(), NULL)")
    problem(queues.act("POST", "/mine/actions/read", READING), 409, "message 1")


@pytest.mark.nightly
def test_locks_in_our_database_keep_no_roles_from_being_made(shared_rig: Rig) -> None:
    fresh = make(shared_rig)
    with fresh.session(database="postgres") as former:
        former.execute("SELECT pg_advisory_lock(0, 0)")
        began = time.monotonic()
        fresh.make("there")
        assert time.monotonic() - began < WITHIN_S
    shared_rig.action(fresh.instance_id, "erase")


@pytest.mark.nightly
def test_who_lifts_the_time_limit_holds_no_turn_for_long(queues: Queues) -> None:
    say(
        queues,
        "ALTER TABLE pgmq.meta RENAME TO meta_",
        """CREATE VIEW pgmq.meta AS SELECT * FROM pgmq.meta_
        WHERE set_config('statement_timeout', '0', false) IS NOT NULL""",
        "DROP FUNCTION pgmq.read",
        """CREATE FUNCTION pgmq.read(text, integer, integer) RETURNS SETOF pgmq.message_record
        LANGUAGE plpgsql AS $$ BEGIN LOOP BEGIN PERFORM pg_sleep(60);
        EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$""",
    )
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        asked = [
            threads.submit(queues.act, "POST", "/mine/actions/read", READING)
            for _ in range(AT_ONCE)
        ]
        for each in asked:
            problem(each.result(), 503, "took too long")
    assert time.monotonic() - began < 2 * (WITHIN_S + TURN_WITHIN_S)
    assert list(queues.list()) == ["mine"], "the turns are free again"
