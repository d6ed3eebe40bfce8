"""Which placement each cell offers, and who has signed the business associate agreement."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611292350"
down_revision = "202611292340"


def upgrade() -> None:
    op.add_column(
        "cells", sa.Column("placement", sa.String(), server_default="shared", nullable=False)
    )
    op.create_table(
        "baa_signatures",
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("signed_by", sa.String(), nullable=False),
        sa.Column("signer_name", sa.String(), nullable=False),
        sa.Column("signer_email", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_baa_signatures_org_id")
        ),
        sa.ForeignKeyConstraint(
            ["signed_by"], ["users.id"], name=op.f("fk_baa_signatures_signed_by")
        ),
        sa.PrimaryKeyConstraint("org_id", "version", name=op.f("pk_baa_signatures")),
    )


def downgrade() -> None:
    op.drop_table("baa_signatures")
    op.drop_column("cells", "placement")
