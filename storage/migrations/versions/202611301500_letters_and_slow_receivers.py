"""When an organization was told of critical alerts: these do not wait behind milder ones."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611301500"
down_revision = "202611301450"


def upgrade() -> None:
    column = "critical_alerts_mailed_at"
    op.add_column("organizations", sa.Column(column, Timestamp(), nullable=True))


def downgrade() -> None:
    op.drop_column("organizations", "critical_alerts_mailed_at")
