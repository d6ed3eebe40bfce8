"""Payments: customers and invoices at a payment provider, and the events that it has sent."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611301541"
down_revision = "202611301540"


def upgrade() -> None:
    op.create_table(
        "payment_customers",
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("customer_id", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_payment_customers_org_id")
        ),
        sa.PrimaryKeyConstraint("org_id", name=op.f("pk_payment_customers")),
    )
    table = "invoice_payments"
    op.create_table(
        table,
        sa.Column("invoice_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("provider_invoice_id", sa.String(), nullable=True),
        sa.Column("url", sa.String(), nullable=True),
        sa.Column("asked_cents", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.String(), nullable=True),
        sa.Column("problem", sa.String(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "ended IN ('paid', 'void', 'elsewhere')", name=op.f(f"ck_{table}_ended")
        ),
        sa.ForeignKeyConstraint(
            ["invoice_id"], ["invoices.id"], name=op.f(f"fk_{table}_invoice_id")
        ),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f(f"fk_{table}_org_id")),
        sa.PrimaryKeyConstraint("invoice_id", name=op.f(f"pk_{table}")),
        sa.UniqueConstraint("provider_invoice_id", name=op.f(f"uq_{table}_provider_invoice_id")),
    )
    op.create_index(op.f(f"ix_{table}_org_id"), table, ["org_id"])
    op.create_table(
        "payment_notices",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_payment_notices")),
    )
    op.create_index(op.f("ix_payment_notices_created_at"), "payment_notices", ["created_at"])


def downgrade() -> None:
    for table in ("payment_notices", "invoice_payments", "payment_customers"):
        op.drop_table(table)
