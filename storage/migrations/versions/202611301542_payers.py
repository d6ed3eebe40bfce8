"""Payers: which parents pay for their subsidiaries, and from when until when they did."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611301542"
down_revision = "202611301541"

_LASTS = sa.text("until IS NULL")


def upgrade() -> None:
    op.add_column(
        "enterprise_orgs",
        sa.Column("consolidated_invoice", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    table = "payer_spans"
    op.create_table(
        table,
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("payer_id", sa.String(), nullable=False),
        sa.Column("since", Timestamp(), nullable=False),
        sa.Column("until", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f(f"fk_{table}_org_id")),
        sa.ForeignKeyConstraint(
            ["payer_id"], ["organizations.id"], name=op.f(f"fk_{table}_payer_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    )
    for column in ("org_id", "payer_id"):
        op.create_index(op.f(f"ix_{table}_{column}_until"), table, [column, "until"])
    op.create_index(
        "ix_payer_spans_lasts",
        table,
        ["org_id"],
        unique=True,
        postgresql_where=_LASTS,
        sqlite_where=_LASTS,
    )


def downgrade() -> None:
    op.drop_table("payer_spans")
    op.drop_column("enterprise_orgs", "consolidated_invoice")
