"""What teams are charged to, and what they may spend in a month."""

import sqlalchemy as sa
from alembic import op

revision = "202611292110"
down_revision = "202611292050"

ADDED = ("cost_centre", "monthly_budget_cents")


def upgrade() -> None:
    op.add_column("teams", sa.Column("cost_centre", sa.String(), nullable=True))
    op.add_column("teams", sa.Column("monthly_budget_cents", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    for column in reversed(ADDED):
        op.drop_column("teams", column)
