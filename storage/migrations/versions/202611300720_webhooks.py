"""Webhook endpoints, what was delivered to them, and the lanes of receivers."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json, Timestamp

revision = "202611300720"
down_revision = "202611300710"


def upgrade() -> None:
    _lanes()
    _endpoints()
    _deliveries()


def _lanes() -> None:
    table = "delivery_lanes"
    op.create_table(
        table,
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("due", Timestamp(), nullable=True),
        sa.Column("retry_at", Timestamp(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("failing_since", Timestamp(), nullable=True),
        sa.Column("is_slow", sa.Boolean(), nullable=False),
        sa.Column("taken_at", Timestamp(), nullable=True),
        sa.Column("lease", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(), nullable=True),
        sa.Column("leased_until", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f(f"fk_{table}_org_id")),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    )
    for columns in (["kind", "due"], ["retry_at"], ["org_id"], ["holder"]):
        op.create_index(op.f(f"ix_{table}_{'_'.join(columns)}"), table, columns)


def _endpoints() -> None:
    table = "webhook_endpoints"
    op.create_table(
        table,
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("events", Json, nullable=False),
        sa.Column("filters", Json, nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_at", Timestamp(), nullable=True),
        sa.Column("disabled_reason", sa.String(), nullable=True),
        sa.Column("secret_sealed", sa.LargeBinary(), nullable=False),
        sa.Column("previous_sealed", sa.LargeBinary(), nullable=True),
        sa.Column("previous_until", Timestamp(), nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f(f"fk_{table}_org_id")),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    )
    op.create_index(op.f(f"ix_{table}_org_id"), table, ["org_id"])


def _deliveries() -> None:
    table = "webhook_deliveries"
    statuses = "'pending', 'succeeded', 'failed', 'dropped'"
    op.create_table(
        table,
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("webhook_id", sa.String(), nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("event_type", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempts", Json, nullable=False),
        sa.Column("attempt_count", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", Timestamp(), nullable=True),
        sa.Column("until", Timestamp(), nullable=False),
        sa.Column("lease", sa.BigInteger(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(f"status IN ({statuses})", name=op.f(f"ck_{table}_status")),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f(f"fk_{table}_org_id")),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    )
    for columns in (["webhook_id", "id"], ["webhook_id", "next_attempt_at"], ["org_id"]):
        op.create_index(op.f(f"ix_{table}_{'_'.join(columns)}"), table, columns)


def downgrade() -> None:
    for table in ("webhook_deliveries", "webhook_endpoints", "delivery_lanes"):
        op.drop_table(table)
