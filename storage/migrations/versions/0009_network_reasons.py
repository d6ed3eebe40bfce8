"""Why a network is not applied; NULL where nothing is in its way."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("networks", sa.Column("status_reason", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("networks", "status_reason")
