"""Teams, their members, and whose team each project and instance is: Everyone's."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "0011"
down_revision = "0010"

OF_TEAMS = ("projects", "instances")


def upgrade() -> None:
    op.create_table(
        "teams",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("slug", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_teams_org_id"),
        sa.PrimaryKeyConstraint("id", name="pk_teams"),
        sa.UniqueConstraint("org_id", "slug", name="uq_teams_org_id_slug"),
    )
    op.create_table(
        "team_members",
        sa.Column("team_id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "role IN ('admin', 'operator', 'viewer')", name=op.f("ck_team_members_role")
        ),
        sa.ForeignKeyConstraint(
            ["org_id", "user_id"],
            ["memberships.org_id", "memberships.user_id"],
            name="fk_team_members_org_id_user_id",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name="fk_team_members_team_id"),
        sa.PrimaryKeyConstraint("team_id", "user_id", name="pk_team_members"),
    )
    op.create_index("ix_team_members_org_id_user_id", "team_members", ["org_id", "user_id"])
    op.add_column(
        "memberships",
        sa.Column("teams_only", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    op.execute(
        "INSERT INTO teams (id, org_id, name, slug, created_at)"
        " SELECT 'team_' || substr(id, 5), id, 'Everyone', 'everyone', created_at"
        " FROM organizations"
    )
    for table in OF_TEAMS:
        # SQLite knows a foreign key of a new column only where the column is declared.
        op.execute(
            f"ALTER TABLE {table} ADD COLUMN team_id VARCHAR"
            f" CONSTRAINT fk_{table}_team_id REFERENCES teams (id)"
        )
        made = sa.table(table, sa.column("team_id", sa.String()), sa.column("org_id", sa.String()))
        everyone = sa.literal("team_").concat(sa.func.substr(made.c.org_id, 5))
        op.execute(sa.update(made).values(team_id=everyone))


def downgrade() -> None:
    for table in OF_TEAMS:
        op.drop_column(table, "team_id")
    op.drop_column("memberships", "teams_only")
    op.drop_table("team_members")
    op.drop_table("teams")
