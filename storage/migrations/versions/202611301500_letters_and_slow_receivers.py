"""When an organization was told of critical alerts, and until when a receiver counts as slow.

Critical alerts do not wait behind milder ones, and receivers that are slow now and then not among
those that never are.
"""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611301500"
down_revision = "202611301450"


def upgrade() -> None:
    column = "critical_alerts_mailed_at"
    op.add_column("organizations", sa.Column(column, Timestamp(), nullable=True))
    op.add_column("delivery_lanes", sa.Column("slow_until", Timestamp(), nullable=True))


def downgrade() -> None:
    op.drop_column("delivery_lanes", "slow_until")
    op.drop_column("organizations", "critical_alerts_mailed_at")
