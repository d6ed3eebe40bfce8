"""Parents of enterprises with their terms, and the subsidiaries that are attached to them."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611292352"
down_revision = "202611292350"


def upgrade() -> None:
    op.create_table(
        "enterprise_orgs",
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("parent_id", sa.String(), nullable=True),
        sa.Column("attached_by", sa.String(), nullable=True),
        sa.Column("contract_reference", sa.String(), nullable=True),
        sa.Column("billing_email", sa.String(), nullable=True),
        sa.Column("commitment_usd_cents_month", sa.BigInteger(), nullable=True),
        sa.Column("starts_on", sa.String(), nullable=True),
        sa.Column("ends_on", sa.String(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_enterprise_orgs_org_id")
        ),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["enterprise_orgs.org_id"], name=op.f("fk_enterprise_orgs_parent_id")
        ),
        sa.PrimaryKeyConstraint("org_id", name=op.f("pk_enterprise_orgs")),
    )
    op.create_index(op.f("ix_enterprise_orgs_parent_id"), "enterprise_orgs", ["parent_id"])


def downgrade() -> None:
    op.drop_table("enterprise_orgs")
