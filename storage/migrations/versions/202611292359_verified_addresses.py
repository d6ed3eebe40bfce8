"""When people have shown that mail to their address reaches them."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611292359"
down_revision = "202611292358"


def upgrade() -> None:
    op.add_column("users", sa.Column("email_verified_at", Timestamp(), nullable=True))


def downgrade() -> None:
    op.drop_column("users", "email_verified_at")
