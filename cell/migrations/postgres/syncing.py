"""The changes of a source after its copy, by logical replication.

The source has a publication and a slot; the instance's server subscribes, through a socket in the
folder that it runs in, which leads to the source and nowhere else. It applies changes as the
owner. The password is in a file beside the socket, and so in no catalog and no backup.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from cell.migrations.conduit import Conduit
from cell.migrations.postgres.psql import VALUE_BYTES_MAX, PsqlSession, QueryError
from cell.migrations.postgres.quoting import identifier, literal
from cell.migrations.postgres.source import PostgresSource, snapshot_name
from cell.migrations.postgres.tables import SourceTable
from cell.migrations.postgres.target import PostgresTarget
from cell.migrations.server_socket import PASSWORDS

SNAPSHOT_COLUMN = 2
# Of what the source still has to send; and what it has said last.
LAG = """
SELECT json_build_object('bytes', pg_catalog.pg_wal_lsn_diff(
        pg_catalog.pg_current_wal_lsn(), confirmed_flush_lsn)::bigint,
    'now', pg_catalog.pg_current_wal_lsn()::text,
    'confirmed', confirmed_flush_lsn::text,
    'lost', coalesce(to_jsonb(s) ->> 'wal_status', '') = 'lost')
FROM pg_catalog.pg_replication_slots AS s WHERE slot_name = {slot}
"""
PASSED = """
SELECT to_json(confirmed_flush_lsn >= {position}::pg_lsn)
FROM pg_catalog.pg_replication_slots WHERE slot_name = {slot}
"""
POSITION = "SELECT to_json(pg_catalog.pg_current_wal_lsn()::text)"
STATE = """
SELECT extract(epoch FROM clock_timestamp() - s.latest_end_time)::float8,
    s.pid IS NOT NULL, u.subenabled, r.rolname
FROM pg_catalog.pg_subscription u
JOIN pg_catalog.pg_roles r ON r.oid = u.subowner
LEFT JOIN pg_catalog.pg_stat_subscription s ON s.subid = u.oid
WHERE u.subname = {name}
"""
DROP_SLOT = """
SELECT to_json(1) FROM pg_catalog.pg_drop_replication_slot({slot})
"""
END_SENDER = """
SELECT to_json(pg_catalog.pg_terminate_backend(active_pid))
FROM pg_catalog.pg_replication_slots WHERE slot_name = {slot} AND active_pid IS NOT NULL
"""
HAS_SLOT = """
SELECT to_json(count(*)) FROM pg_catalog.pg_replication_slots WHERE slot_name = {slot}
"""


@dataclass(frozen=True)
class Lag:
    bytes: int
    position: str
    is_lost: bool


@dataclass(frozen=True)
class SubscriptionState:
    """`heard_s`: how long ago the source was last heard of; None where it never was."""

    heard_s: float | None
    is_working: bool
    is_enabled: bool
    owner: str


async def publish(source: PostgresSource, name: str, tables: Sequence[SourceTable]) -> None:
    """All tables that are logged, by their names."""
    listed = ", ".join(each.sql for each in tables if each.persistence == "p")
    of = f" FOR TABLE {listed}" if listed else ""
    async with source.session() as asked:
        await asked.run(f"CREATE PUBLICATION {identifier(name)}{of}")


@contextlib.asynccontextmanager
async def new_slot(source: PostgresSource, name: str) -> AsyncIterator[str]:
    """A snapshot of what there is before the slot's first change, which lasts with the block."""
    with source.explained():
        async with source.replication() as asked:
            found = await asked.lines(
                f"CREATE_REPLICATION_SLOT {identifier(name)} LOGICAL pgoutput EXPORT_SNAPSHOT"
            )
            if not found:
                raise QueryError("the source made no replication slot")
            columns = found[0].decode(errors="replace").split("|")
            yield snapshot_name(columns[SNAPSHOT_COLUMN] if columns[SNAPSHOT_COLUMN:] else "")


async def subscribe(target: PostgresTarget, conduit: Conduit, name: str, folder: str) -> None:
    """To a slot and a publication of that name, once it is enabled; as the owner."""
    uri = conduit.source
    told = {
        "host": folder,
        "port": "5432",
        "user": uri.user,
        "dbname": uri.database,
        "passfile": f"{folder}/{PASSWORDS}",
        "sslmode": "disable",
        "connect_timeout": "20",
    }
    words = " ".join(f"{key}='{_escaped(value)}'" for key, value in told.items())
    settings = (
        f"slot_name = {literal(name)}, create_slot = false, copy_data = false, enabled = false"
    )
    named = identifier(name)
    await target.as_server(
        f"CREATE SUBSCRIPTION {named} CONNECTION {literal(words)} PUBLICATION {named}"
        f" WITH ({settings})",
        f"ALTER SUBSCRIPTION {named} SET (password_required = false)",
    )
    await hand_over(target, name)


async def hand_over(target: PostgresTarget, name: str) -> None:
    """To the login that the cell's tools have, which acts as the owner."""
    login = identifier(target.login.username)
    await target.as_server(f"ALTER SUBSCRIPTION {identifier(name)} OWNER TO {login}")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")


async def state(target: PostgresTarget, name: str) -> SubscriptionState | None:
    rows = await target.as_server(STATE.format(name=literal(name)))
    if not rows:
        return None
    heard_s, is_working, is_enabled, owner = rows[0]
    heard = None if heard_s is None else max(0.0, float(str(heard_s)))
    return SubscriptionState(heard, bool(is_working), bool(is_enabled), str(owner))


async def lag(asked: PsqlSession, name: str) -> Lag | None:
    """None where the slot is gone."""
    found = await asked.rows(LAG.format(slot=literal(name)), VALUE_BYTES_MAX)
    if not found:
        return None
    return Lag(max(0, int(found[0]["bytes"] or 0)), str(found[0]["now"]), bool(found[0]["lost"]))


async def has_passed(asked: PsqlSession, name: str, position: str) -> bool:
    query = PASSED.format(slot=literal(name), position=literal(position))
    return bool(await asked.value(query))


async def unpublish(source: PostgresSource, made: dict[str, str]) -> None:
    """Removes what is at the source; what is not there is well."""
    async with source.session() as asked:
        if (slot := made.get("slot")) is not None:
            named = literal(slot)
            if int(await asked.value(HAS_SLOT.format(slot=named))):
                await asked.rows(END_SENDER.format(slot=named))
                await asked.rows(DROP_SLOT.format(slot=named))
        if (publication := made.get("publication")) is not None:
            await asked.run(f"DROP PUBLICATION IF EXISTS {identifier(publication)}")
