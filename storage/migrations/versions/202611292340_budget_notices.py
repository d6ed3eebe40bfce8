"""Budget notices; and alerts that are about a team, and no instance of it."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611292340"
down_revision = "202611292330"

_OF_TEAMS = sa.text("resolved_at IS NULL AND instance_id IS NULL")


def upgrade() -> None:
    op.create_table(
        "budget_notices",
        sa.Column("team_id", sa.String(), nullable=False),
        sa.Column("month", sa.String(), nullable=False),
        sa.Column("percent", sa.Integer(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_budget_notices_team_id")),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_budget_notices_org_id")
        ),
        sa.PrimaryKeyConstraint("team_id", "month", "percent", name=op.f("pk_budget_notices")),
    )
    _let_alerts_have_no_instance(True)
    op.create_index(
        "ix_alerts_unresolved_of_teams",
        "alerts",
        ["team_id", "kind"],
        postgresql_where=_OF_TEAMS,
        sqlite_where=_OF_TEAMS,
    )


def downgrade() -> None:
    op.drop_index("ix_alerts_unresolved_of_teams", "alerts")
    op.execute("DELETE FROM alerts WHERE instance_id IS NULL")
    _let_alerts_have_no_instance(False)
    op.drop_table("budget_notices")


def _let_alerts_have_no_instance(nullable: bool) -> None:
    with op.batch_alter_table("alerts") as table:
        table.alter_column("instance_id", existing_type=sa.String(), nullable=nullable)
