"""Spans: what each instance was from when to when, which the database itself writes down."""

import sqlalchemy as sa
from alembic import op

from storage.columns import DatabaseClock, Timestamp

revision = "202611292330"
down_revision = "202611292320"

_OPEN = sa.text("until IS NULL")
_BILLED = "({row}.ready_at IS NOT NULL AND {row}.desired_status IN ('running', 'paused'))"
_RUNS = "({row}.status IN ('running', 'resizing'))"
_WATCHED = "team_id, size, storage_bytes, status, desired_status, ready_at"
_COLUMNS = "org_id, instance_id, team_id, size, storage_bytes, runs, since, created_at"


def upgrade() -> None:
    op.create_table(
        "spans",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("team_id", sa.String(), nullable=True),
        sa.Column("size", sa.String(), nullable=False),
        sa.Column("storage_bytes", sa.BigInteger(), nullable=False),
        sa.Column("runs", sa.Boolean(), nullable=False),
        sa.Column("since", Timestamp(), nullable=False),
        sa.Column("until", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f("fk_spans_org_id")),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_spans_instance_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spans")),
    )
    op.create_index(
        "ix_spans_open",
        "spans",
        ["instance_id"],
        unique=True,
        postgresql_where=_OPEN,
        sqlite_where=_OPEN,
    )
    op.create_index(op.f("ix_spans_instance_id_until"), "spans", ["instance_id", "until"])
    op.create_index(op.f("ix_spans_team_id_until"), "spans", ["team_id", "until"])
    dialect = op.get_bind().dialect
    clock = str(DatabaseClock().compile(dialect=dialect))
    for statement in _postgresql(clock) if dialect.name == "postgresql" else _sqlite(clock):
        op.execute(sa.text(statement.replace(":=", r"\:=")))
    _begin(clock)


def _begin(clock: str) -> None:
    """Since its row was last written an instance has been what it is; of before that, who knows."""
    row = "instances"
    op.execute(
        f"INSERT INTO spans ({_COLUMNS})"  # noqa: S608 - of constants
        f" SELECT org_id, id, team_id, size, storage_bytes, {_RUNS.format(row=row)}, updated_at,"
        f" {clock} FROM instances WHERE {_BILLED.format(row=row)} ORDER BY id"
    )


_VALUES = f"NEW.org_id, NEW.id, NEW.team_id, NEW.size, NEW.storage_bytes, {_RUNS.format(row='NEW')}"
_LAST = "(SELECT max(s.until) FROM spans s WHERE s.instance_id = NEW.id)"
_IS_BILLED = _BILLED.format(row="NEW")
_ENDED = "OLD.until IS NOT NULL"
_TOLD = "of a span its end is written, once, and nothing else changes"


def _kept(row: str) -> str:
    told = _BILLED.format(row=row), _RUNS.format(row=row)
    return f"({', '.join(told)}, {row}.team_id, {row}.size, {row}.storage_bytes)"


def _own(row: str) -> str:
    names = ("id", *_COLUMNS.split(", "))
    return f"({', '.join(f'{row}.{name}' for name in names)})"


# A change is of the moment that the clock shows, and of none before that at which its row says that
# it was written. A clock that was set back makes a span of no length, but none that ends before it
# begins, and no two that overlap.
def _sqlite(clock: str) -> list[str]:
    moment = f"max(NEW.updated_at, {clock})"
    begin = f"""
        CREATE TRIGGER instances_begin_span AFTER INSERT ON instances WHEN {_IS_BILLED}
        BEGIN
            INSERT INTO spans ({_COLUMNS}) VALUES ({_VALUES}, {moment}, {clock});
        END
    """  # noqa: S608 - of constants
    change = f"""
        CREATE TRIGGER instances_change_span AFTER UPDATE OF {_WATCHED} ON instances
        WHEN {_kept("NEW")} IS NOT {_kept("OLD")}
        BEGIN
            UPDATE spans SET until = max(since, {moment})
                WHERE instance_id = NEW.id AND until IS NULL;
            INSERT INTO spans ({_COLUMNS})
                SELECT {_VALUES}, max({moment}, coalesce({_LAST}, 0)), {clock}
                WHERE {_IS_BILLED};
        END
    """  # noqa: S608
    keep = f"""
        CREATE TRIGGER spans_keep AFTER UPDATE ON spans
        WHEN {_ENDED} OR {_own("NEW")} IS NOT {_own("OLD")}
        BEGIN
            SELECT RAISE(ABORT, '{_TOLD}');
        END
    """
    return [begin, change, keep]


def _postgresql(clock: str) -> list[str]:
    record = f"""
        CREATE FUNCTION record_span() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            shown timestamptz := {clock};
            moment timestamptz := greatest(NEW.updated_at, shown);
        BEGIN
            IF TG_OP = 'UPDATE' THEN
                UPDATE spans SET until = greatest(since, moment)
                    WHERE instance_id = NEW.id AND until IS NULL;
            END IF;
            IF {_IS_BILLED} THEN
                INSERT INTO spans ({_COLUMNS}) VALUES ({_VALUES}, greatest(moment, {_LAST}), shown);
            END IF;
            RETURN NULL;
        END $$
    """  # noqa: S608
    begin = f"""
        CREATE TRIGGER instances_begin_span AFTER INSERT ON instances FOR EACH ROW
        WHEN {_IS_BILLED} EXECUTE FUNCTION record_span()
    """
    change = f"""
        CREATE TRIGGER instances_change_span AFTER UPDATE OF {_WATCHED} ON instances FOR EACH ROW
        WHEN ({_kept("NEW")} IS DISTINCT FROM {_kept("OLD")}) EXECUTE FUNCTION record_span()
    """
    refuse = f"""
        CREATE FUNCTION keep_span() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION '{_TOLD}';
        END $$
    """
    keep = f"""
        CREATE TRIGGER spans_keep AFTER UPDATE ON spans FOR EACH ROW
        WHEN ({_ENDED} OR {_own("NEW")} IS DISTINCT FROM {_own("OLD")})
        EXECUTE FUNCTION keep_span()
    """
    return [record, begin, change, refuse, keep]


def downgrade() -> None:
    on = " ON instances" if op.get_bind().dialect.name == "postgresql" else ""
    for name in ("instances_begin_span", "instances_change_span"):
        op.execute(f"DROP TRIGGER {name}{on}")
    op.drop_table("spans")
    if on:
        for name in ("record_span", "keep_span"):
            op.execute(f"DROP FUNCTION {name}()")
