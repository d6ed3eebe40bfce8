"""Alerts about organizations, their causes, and what has been told of them."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611300740"
down_revision = "202611300730"

_OF_ORGANIZATIONS = sa.text("resolved_at IS NULL AND team_id IS NULL")
_MAIL_DUE = sa.text("is_mail_due")


def upgrade() -> None:
    op.add_column("alerts", sa.Column("cause", sa.String(), server_default="", nullable=False))
    op.add_column("alerts", sa.Column("told_severity", sa.String(), nullable=True))
    op.add_column(
        "alerts",
        sa.Column("is_mail_due", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    # Nobody is told anew of what was raised before.
    op.execute("UPDATE alerts SET told_severity = severity")
    op.create_index(
        "ix_alerts_unresolved_of_organizations",
        "alerts",
        ["org_id", "kind"],
        postgresql_where=_OF_ORGANIZATIONS,
        sqlite_where=_OF_ORGANIZATIONS,
    )
    op.create_index(
        "ix_alerts_mail_due",
        "alerts",
        ["org_id"],
        postgresql_where=_MAIL_DUE,
        sqlite_where=_MAIL_DUE,
    )
    emails = sa.Column("alert_emails", sa.String(), server_default="critical", nullable=False)
    op.add_column("organizations", emails)
    op.add_column("organizations", sa.Column("alerts_mailed_at", Timestamp(), nullable=True))
    op.add_column("cells", sa.Column("expected_at", Timestamp(), nullable=True))


def downgrade() -> None:
    op.drop_column("cells", "expected_at")
    op.drop_column("organizations", "alerts_mailed_at")
    op.drop_column("organizations", "alert_emails")
    op.drop_index("ix_alerts_mail_due", "alerts")
    op.drop_index("ix_alerts_unresolved_of_organizations", "alerts")
    op.execute("DELETE FROM alerts WHERE team_id IS NULL")
    for column in ("is_mail_due", "told_severity", "cause"):
        op.drop_column("alerts", column)
