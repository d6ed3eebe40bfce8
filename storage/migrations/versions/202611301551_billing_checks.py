"""When each month's bills were compared with what was metered, and what was found."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611301551"
down_revision = "202611301550"


def upgrade() -> None:
    op.create_table(
        "billing_checks",
        sa.Column("month", sa.String(), nullable=False),
        sa.Column("checked_at", Timestamp(), nullable=False),
        sa.Column("organizations", sa.BigInteger(), nullable=False),
        sa.Column("differences", sa.BigInteger(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("month", name=op.f("pk_billing_checks")),
    )


def downgrade() -> None:
    op.drop_table("billing_checks")
