"""What organizations ask of sessions, API keys and email addresses."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json

revision = "202611292357"
down_revision = "202611292356"


def upgrade() -> None:
    op.add_column("organizations", sa.Column("session_max_age_s", sa.Integer(), nullable=True))
    op.add_column("organizations", sa.Column("api_key_max_age_s", sa.Integer(), nullable=True))
    op.add_column("organizations", sa.Column("allowed_email_domains", Json, nullable=True))


def downgrade() -> None:
    for column in ("allowed_email_domains", "api_key_max_age_s", "session_max_age_s"):
        op.drop_column("organizations", column)
