"""Copies of backups in a second store: who wants them, what cells tell, what used them."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611280300"
down_revision = "202611260237"

_ADDED = (
    ("backups", "copied_at", Timestamp()),
    ("restores", "from_copy", sa.Boolean()),
    ("backup_settings", "copy_target", sa.String()),
    ("cells", "has_second_store", sa.Boolean()),
)


def upgrade() -> None:
    for table, column, kind in _ADDED:
        op.add_column(table, sa.Column(column, kind, nullable=True))
    op.create_table(
        "backup_copies",
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("is_wanted", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.Column("copied", sa.Integer(), nullable=False),
        sa.Column("newest_at", Timestamp(), nullable=True),
        sa.Column("restorable_until", Timestamp(), nullable=True),
        sa.Column("is_interrupted", sa.Boolean(), nullable=False),
        sa.Column("seen_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "status IN ('off', 'copying', 'current', 'late')",
            name=op.f("ck_backup_copies_status"),
        ),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_backup_copies_org_id")
        ),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_backup_copies_instance_id")
        ),
        sa.PrimaryKeyConstraint("instance_id", name=op.f("pk_backup_copies")),
    )


def downgrade() -> None:
    op.drop_table("backup_copies")
    for table, column, _ in reversed(_ADDED):
        op.drop_column(table, column)
