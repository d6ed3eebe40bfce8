"""Migrations into instances: what was asked for, and how far their cells are with them."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json, Timestamp

revision = "202611260237"
down_revision = "202611260230"

_STATUSES = (
    *("awaiting_source", "preflight", "copying", "syncing", "cutting_over", "verifying"),
    *("cancelling", "completed", "failed", "cancelled"),
)
_OPEN = "status NOT IN ('completed', 'failed', 'cancelled')"


def upgrade() -> None:
    op.create_table(
        "migrations",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("id", "org_id", "instance_id")),
        sa.Column("source_kind", sa.String(), nullable=False),
        sa.Column("source_format", sa.String(), nullable=True),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("dry_run", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.String(), nullable=True),
        *(
            sa.Column(name, Json, nullable=True)
            for name in ("preflight", "progress", "verification")
        ),
        sa.Column("keep_way_back_s", sa.Integer(), nullable=True),
        sa.Column("way_back_until", Timestamp(), nullable=True),
        sa.Column("requested_by", sa.String(), nullable=True),
        *(
            sa.Column(name, Timestamp(), nullable=True)
            for name in (
                *("source_received_at", "started_at", "cutover_at", "completed_at"),
                "told_at",
            )
        ),
        sa.Column("told_percent", sa.Integer(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        _one_of("source_kind", ("upload", "connection")),
        _one_of("mode", ("copy", "copy_and_sync")),
        _one_of("status", _STATUSES),
        _to("org_id", "organizations.id"),
        _to("instance_id", "instances.id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_migrations")),
    )
    op.create_index("ix_migrations_instance_id_id", "migrations", ["instance_id", "id"])
    op.create_index("ix_migrations_org_id_id", "migrations", ["org_id", "id"])
    _partial("ix_migrations_open", _OPEN, unique=True)
    _partial("ix_migrations_watched", f"({_OPEN} OR way_back_until IS NOT NULL)")


def downgrade() -> None:
    op.drop_table("migrations")


def _one_of(column: str, values: tuple[str, ...]) -> sa.CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    name = op.f(f"ck_migrations_{column}")
    return sa.CheckConstraint(f"{column} IN ({listed})", name=name)


def _to(column: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [target], name=op.f(f"fk_migrations_{column}"))


def _partial(name: str, where: str, *, unique: bool = False) -> None:
    op.create_index(
        *(name, "migrations", ["instance_id"]),
        unique=unique,
        postgresql_where=sa.text(where),
        sqlite_where=sa.text(where),
    )
