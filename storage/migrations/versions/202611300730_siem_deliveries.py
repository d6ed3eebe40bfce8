"""SIEM deliveries: where the audit log and events are sent, and what instances sent out."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json, Timestamp

revision = "202611300730"
down_revision = "202611300720"


def upgrade() -> None:
    table = "siem_deliveries"
    op.create_table(
        table,
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("format", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("target", Json, nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("audit_seq", sa.BigInteger(), nullable=False),
        sa.Column("events_seq", sa.BigInteger(), nullable=False),
        sa.Column("egress_seq", sa.BigInteger(), nullable=False),
        sa.Column("batches", sa.BigInteger(), nullable=False),
        sa.Column("batch_to", Json, nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("failing_since", Timestamp(), nullable=True),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.Column("interruption_told", sa.Boolean(), nullable=False),
        sa.Column("last_delivered_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint("format IN ('envelope', 'ocsf')", name=op.f(f"ck_{table}_format")),
        sa.CheckConstraint("kind IN ('webhook', 's3')", name=op.f(f"ck_{table}_kind")),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f(f"fk_{table}_org_id")),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    )
    op.create_index(op.f(f"ix_{table}_org_id_id"), table, ["org_id", "id"])
    _egress()


def _egress() -> None:
    table = "egress_reports"
    op.create_table(
        table,
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("time", Timestamp(), nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f(f"fk_{table}_org_id")),
        sa.PrimaryKeyConstraint("org_id", "seq", name=op.f(f"pk_{table}")),
    )
    op.create_index(op.f(f"ix_{table}_created_at"), table, ["created_at"])
    table = "egress_counts"
    op.create_table(
        table,
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f(f"fk_{table}_org_id")),
        sa.PrimaryKeyConstraint("org_id", name=op.f(f"pk_{table}")),
    )


def downgrade() -> None:
    op.drop_table("egress_counts")
    op.drop_table("egress_reports")
    op.drop_table("siem_deliveries")
