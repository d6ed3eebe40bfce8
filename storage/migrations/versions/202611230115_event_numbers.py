"""An organization's events are numbered as they are committed, for those who follow them."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611230115"
down_revision = "202611230052"


def upgrade() -> None:
    op.create_table(
        "event_counts",
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_event_counts_org_id"),
        sa.PrimaryKeyConstraint("org_id", name="pk_event_counts"),
    )
    op.add_column("events", sa.Column("seq", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(
        "UPDATE events SET seq = numbered.seq FROM (SELECT id,"
        " row_number() OVER (PARTITION BY org_id ORDER BY id) AS seq FROM events) AS numbered"
        " WHERE numbered.id = events.id"
    )
    op.execute(
        "INSERT INTO event_counts (org_id, last, created_at)"
        " SELECT org_id, max(seq), max(created_at) FROM events GROUP BY org_id"
    )
    for owner in ("org_id", "instance_id"):
        op.create_index(f"ix_events_{owner}_seq", "events", [owner, "seq"])
        op.drop_index(f"ix_events_{owner}_id", table_name="events")


def downgrade() -> None:
    for owner in ("org_id", "instance_id"):
        op.create_index(f"ix_events_{owner}_id", "events", [owner, "id"])
        op.drop_index(f"ix_events_{owner}_seq", table_name="events")
    op.drop_column("events", "seq")
    op.drop_table("event_counts")
