"""What cells tell of archived WAL, the moments of restores, and whether WAL is archived."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json, Timestamp

revision = "202611260230"
down_revision = "202611252359"

_ADDED = (
    ("backups", "wal_chain_id", sa.String()),
    ("backups", "consistent_at", Timestamp()),
    ("restores", "at", Timestamp()),
    ("backup_settings", "continuous_archiving", sa.Boolean()),
)


def upgrade() -> None:
    for table, column, kind in _ADDED:
        op.add_column(table, sa.Column(column, kind, nullable=True))
    op.create_table(
        "recovery_windows",
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("is_wanted", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("needs_base", sa.Boolean(), nullable=False),
        sa.Column("is_interrupted", sa.Boolean(), nullable=False),
        sa.Column("ranges", Json, nullable=False),
        sa.Column("gap_at", Timestamp(), nullable=True),
        sa.Column("base_asked_at", Timestamp(), nullable=True),
        sa.Column("seen_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "status IN ('off', 'waiting', 'archiving', 'late')",
            name=op.f("ck_recovery_windows_status"),
        ),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_recovery_windows_org_id")
        ),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_recovery_windows_instance_id")
        ),
        sa.PrimaryKeyConstraint("instance_id", name=op.f("pk_recovery_windows")),
    )


def downgrade() -> None:
    op.drop_table("recovery_windows")
    for table, column, _ in reversed(_ADDED):
        op.drop_column(table, column)
