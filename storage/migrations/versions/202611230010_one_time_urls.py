"""One-time URLs that may still be used: they end with the right that they were asked for with."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611230010"
down_revision = "202611222140"


def upgrade() -> None:
    op.create_table(
        "one_time_urls",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_one_time_urls_org_id"),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name="fk_one_time_urls_instance_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_one_time_urls"),
    )
    op.create_index("ix_one_time_urls_expires_at", "one_time_urls", ["expires_at"])


def downgrade() -> None:
    op.drop_table("one_time_urls")
