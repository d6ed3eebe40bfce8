"""Domains: host names of their owners' own that lead to instances."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "domains",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("hostname", sa.String(), nullable=False),
        sa.Column("cname_target", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.String(), nullable=True),
        sa.Column("checked_at", Timestamp(), nullable=True),
        sa.Column("verified_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint("status IN ('pending', 'verified', 'failed')", name="status"),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name="fk_domains_instance_id"),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_domains_org_id"),
        sa.PrimaryKeyConstraint("id", name="pk_domains"),
    )
    op.create_index(
        "ix_domains_instance_id_hostname", "domains", ["instance_id", "hostname"], unique=True
    )
    verified = sa.text("status = 'verified'")
    op.create_index(
        "ix_domains_verified_hostname",
        "domains",
        ["hostname"],
        unique=True,
        postgresql_where=verified,
        sqlite_where=verified,
    )


def downgrade() -> None:
    op.drop_table("domains")
