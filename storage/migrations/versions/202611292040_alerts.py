"""Alerts: what the people of an organization should look at, until it is over."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611292040"
down_revision = "202611290100"

_UNRESOLVED = sa.text("resolved_at IS NULL")


def upgrade() -> None:
    op.create_table(
        "alerts",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("team_id", sa.String(), nullable=True),
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("severity", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("occurrences", sa.Integer(), nullable=False),
        sa.Column("last_at", Timestamp(), nullable=False),
        sa.Column("resolved_at", Timestamp(), nullable=True),
        sa.Column("acknowledged_at", Timestamp(), nullable=True),
        sa.Column("acknowledged_by", sa.String(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "severity IN ('info', 'warning', 'critical')", name=op.f("ck_alerts_severity")
        ),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f("fk_alerts_org_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_alerts_team_id")),
        sa.ForeignKeyConstraint(
            ["instance_id"], ["instances.id"], name=op.f("fk_alerts_instance_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
    )
    op.create_index(op.f("ix_alerts_org_id_id"), "alerts", ["org_id", "id"])
    op.create_index(
        "ix_alerts_unresolved",
        "alerts",
        ["instance_id", "kind"],
        postgresql_where=_UNRESOLVED,
        sqlite_where=_UNRESOLVED,
    )


def downgrade() -> None:
    op.drop_table("alerts")
