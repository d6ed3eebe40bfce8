"""What is asked of queues, over one connection to their database with PGMQ in it.

Names and ids are parameters throughout: PGMQ itself quotes the names of tables it makes of them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from psycopg import AsyncConnection, Rollback
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from instance_services.queues import names
from instance_services.queues.installation import DEFAULT_ROLES
from specserver import Conflict, NotFound

Answer = dict[str, Any]
Connection = AsyncConnection[TupleRow]
READ_BYTES_MAX: Final = 4 * 2**20
"""Of the bodies of one answer, so that what SQL put into a queue cannot fill anybody's memory."""
KEPT: Final = "2 days"
"""How long an answer is kept; longer than the control plane keeps its own."""

_QUEUES: Final = """
SELECT m.queue_name, m.is_unlogged, m.created_at, coalesce(a.roles, %(roles)s::text[]),
    x.queue_visible_length, x.queue_length, x.total_messages,
    CASE WHEN x.queue_length > 0 THEN greatest(x.oldest_msg_age_sec, 0) END
FROM (
    SELECT * FROM pgmq.meta
    WHERE queue_name COLLATE "C" > %(after)s
    AND pg_catalog.to_regclass(pg_catalog.format('pgmq.%%I', 'q_' || lower(queue_name))) IS NOT NULL
    ORDER BY queue_name COLLATE "C" LIMIT %(limit)s
) m
LEFT JOIN menagerie_queues.access a USING (queue_name)
CROSS JOIN LATERAL pgmq.metrics(m.queue_name) x
ORDER BY m.queue_name COLLATE "C"
"""
# The bodies that fit; of the others only that they are there.
_READ: Final = """
WITH found AS MATERIALIZED (SELECT * FROM pgmq.read(%(name)s, %(timeout)s, %(count)s)),
measured AS (
    SELECT *, sum(octet_length(message::text)) OVER (ORDER BY msg_id) <= %(most)s AS fits
    FROM found
)
SELECT msg_id, read_ct, enqueued_at, vt, CASE WHEN fits THEN message::text END, fits
FROM measured ORDER BY msg_id
"""
_FORGET: Final = f"""
DELETE FROM menagerie_queues.answers WHERE key IN (
    SELECT key FROM menagerie_queues.answers WHERE at < now() - interval '{KEPT}'
    ORDER BY at LIMIT 100 FOR UPDATE SKIP LOCKED
)
"""  # noqa: S608 - our own words


async def once(connection: Connection, key: str, act: Callable[[], Awaitable[Answer]]) -> Answer:
    """What `act` answers, or what it answered when it was done with this key.

    Both are one transaction of the instance: whatever ends in between, it is done once or not.
    """
    async with connection.transaction():
        begun = await connection.execute(
            "INSERT INTO menagerie_queues.answers (key) VALUES (%s) ON CONFLICT DO NOTHING", [key]
        )
        if not begun.rowcount:
            return orjson_object(
                await _one(
                    connection,
                    "SELECT answer::text FROM menagerie_queues.answers WHERE key = %s",
                    [key],
                )
            )
        answer = await act()
        await connection.execute(
            "UPDATE menagerie_queues.answers SET answer = %s WHERE key = %s",
            [Jsonb(answer, dumps=orjson.dumps), key],
        )
        await connection.execute(_FORGET.encode())
        return answer


async def page(connection: Connection, *, limit: int, after: str) -> Answer:
    """Queues in the order of their names, and the name the next page goes on after."""
    given = {"after": after, "limit": limit + 1, "roles": list(DEFAULT_ROLES)}
    rows = await (await connection.execute(_QUEUES, given)).fetchall()
    items = [_queue(row) for row in rows[:limit]]
    return {"items": items, "next_after": items[-1]["name"] if len(rows) > limit else None}


async def create(connection: Connection, name: str, *, unlogged: bool) -> Answer:
    """The queue as it is made; Conflict where there is one."""
    names.check(name)
    # Held to the end of the transaction, as PGMQ's own statements find what is there, and go on.
    await connection.execute("SELECT pgmq.acquire_queue_lock(%s)", [name])
    # One made by SQL in capitals has the same tables.
    taken = "SELECT count(*) FROM pgmq.meta WHERE lower(queue_name) = %s"
    if (await _one(connection, taken, [name]))[0]:
        raise Conflict(f"the instance already has a queue {name}", code="queue_exists")
    make = "SELECT pgmq.create_unlogged(%s)" if unlogged else "SELECT pgmq.create(%s)"
    await connection.execute(make, [name])
    if unlogged:
        await connection.execute("SELECT menagerie_queues.keep_ids(%s)", [name])
    made = "SELECT created_at FROM pgmq.meta WHERE queue_name = %s"
    created_at = (await _one(connection, made, [name]))[0]
    return _queue((name, unlogged, created_at, DEFAULT_ROLES, 0, 0, 0, None))


async def drop(connection: Connection, name: str) -> None:
    """With its messages and its archive."""
    await require(connection, name)
    await connection.execute("SELECT pgmq.drop_queue(%s)", [name])


async def permit(connection: Connection, name: str, roles: Sequence[str]) -> Answer:
    async with connection.transaction():
        await require(connection, name)
        await connection.execute(
            "INSERT INTO menagerie_queues.access VALUES (%s, %s)"
            " ON CONFLICT (queue_name) DO UPDATE SET roles = excluded.roles",
            [name, sorted(roles)],
        )
    return {"name": name, "data_api_roles": sorted(roles)}


async def send(
    connection: Connection, name: str, messages: Sequence[Mapping[str, Any]], delay_s: int
) -> Answer:
    await require(connection, name)
    found = await connection.execute(
        "SELECT * FROM pgmq.send_batch(%s, %s, %s::integer)",
        [name, [Jsonb(each, dumps=orjson.dumps) for each in messages], delay_s],
    )
    return {"message_ids": sorted(row[0] for row in await found.fetchall())}


async def read(connection: Connection, name: str, *, count: int, timeout_s: int) -> Answer:
    """The oldest visible messages, as many as fit into an answer, hidden for `timeout_s`."""
    await require(connection, name)
    given = {"name": name, "timeout": timeout_s, "most": READ_BYTES_MAX}
    while True:
        async with connection.transaction() as transaction:
            found = await connection.execute(_READ, {**given, "count": count})
            rows = await found.fetchall()
            fitting = sum(row[5] for row in rows)
            if fitting == len(rows):
                return {"messages": [_message(row) for row in rows]}
            if not fitting:
                raise Conflict(
                    f"message {rows[0][0]} has more than {READ_BYTES_MAX} bytes; "
                    "read or delete it with SQL",
                    code="message_too_large",
                )
            # What does not fit must not be hidden from anybody.
            raise Rollback(transaction)
        count = fitting


async def delete(connection: Connection, name: str, ids: Sequence[int]) -> Answer:
    return await _remove(connection, "SELECT * FROM pgmq.delete(%s, %s::bigint[])", name, ids)


async def archive(connection: Connection, name: str, ids: Sequence[int]) -> Answer:
    return await _remove(connection, "SELECT * FROM pgmq.archive(%s, %s::bigint[])", name, ids)


async def purge(connection: Connection, name: str) -> Answer:
    """Takes out every message, hidden ones too; the archive stays."""
    await require(connection, name)
    return {"purged": (await _one(connection, "SELECT pgmq.purge_queue(%s)", [name]))[0]}


async def require(connection: Connection, name: str) -> None:
    """Raises NotFound for a queue that is not there."""
    there = "SELECT count(*) FROM pgmq.meta WHERE queue_name = %s"
    if not (await _one(connection, there, [name]))[0]:
        raise NotFound(f"there is no queue {name}", code="queue_not_found")


async def _remove(connection: Connection, statement: str, name: str, ids: Sequence[int]) -> Answer:
    await require(connection, name)
    found = await connection.execute(statement.encode(), [name, list(ids)])
    return {"message_ids": sorted(row[0] for row in await found.fetchall())}


async def _one(connection: Connection, statement: str, given: Sequence[Any]) -> TupleRow:
    row = await (await connection.execute(statement.encode(), given)).fetchone()
    if row is None:
        raise NotFound("it no longer exists")
    return row


def _queue(row: Sequence[Any]) -> Answer:
    name, unlogged, created_at, roles, visible, length, total, oldest_s = row
    return {
        "name": name,
        "unlogged": unlogged,
        "depth": visible,
        "hidden": length - visible,
        "total_messages": total,
        "oldest_message_age_s": oldest_s,
        "data_api_roles": sorted(roles),
        "created_at": moment(created_at),
    }


def _message(row: Sequence[Any]) -> Answer:
    msg_id, read_ct, enqueued_at, visible_at, body, _ = row
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Conflict(
            f"message {msg_id} contains a number that is too large for JSON; read it with SQL",
            code="message_unreadable",
        ) from error
    return {
        "message_id": msg_id,
        "read_count": read_ct,
        "enqueued_at": moment(enqueued_at),
        "visible_at": moment(visible_at),
        "body": message,
    }


def orjson_object(row: TupleRow) -> Answer:
    return dict(orjson.loads(row[0]))


def moment(at: datetime) -> str:
    """RFC 3339 in UTC with milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
