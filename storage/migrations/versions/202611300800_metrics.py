"""Readings: what each instance uses by the last word of its cell, and its counters."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611300800"
down_revision = "202611300750"


def upgrade() -> None:
    op.create_table(
        "readings",
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("seen_at", Timestamp(), nullable=False),
        sa.Column("cell_status", sa.String(), nullable=False),
        sa.Column("started_at", Timestamp(), nullable=True),
        sa.Column("connections", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=False),
        sa.Column("cpu_s", sa.Double(), nullable=False),
        sa.Column("cpu_s_seen", sa.Double(), nullable=False),
        sa.Column("restarts", sa.BigInteger(), nullable=False),
        sa.Column("restarts_seen", sa.BigInteger(), nullable=False),
        sa.Column("statements", sa.BigInteger(), nullable=True),
        sa.Column("statements_seen", sa.BigInteger(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_readings_instance_id")
        ),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f("fk_readings_org_id")),
        sa.PrimaryKeyConstraint("instance_id", name=op.f("pk_readings")),
    )
    op.create_index(op.f("ix_readings_org_id"), "readings", ["org_id"])


def downgrade() -> None:
    op.drop_table("readings")
