"""Networks: allow-lists and client authorities of instances."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json, Timestamp

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "networks",
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("allow_cidrs", Json, nullable=True),
        sa.Column("client_ca_pem", sa.String(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("applied_version", sa.Integer(), nullable=False),
        sa.Column("updated_by", sa.String(), nullable=True),
        sa.Column("updated_at", Timestamp(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name="fk_networks_instance_id"),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_networks_org_id"),
        sa.PrimaryKeyConstraint("instance_id", name="pk_networks"),
    )


def downgrade() -> None:
    op.drop_table("networks")
