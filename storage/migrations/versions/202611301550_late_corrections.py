"""Corrections of hours whose month is billed, and corrections with numbers of their own."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611301550"
down_revision = "202611301542"

_TOLD = "corrections are only added"


def upgrade() -> None:
    op.create_table(
        "late_corrections",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("subject_id", sa.String(), nullable=False),
        sa.Column("meter", sa.String(), nullable=False),
        sa.Column("hour", Timestamp(), nullable=False),
        sa.Column("counts_at", Timestamp(), nullable=False),
        sa.Column("team_id", sa.String(), nullable=True),
        sa.Column("region", sa.String(), nullable=True),
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("quantity", sa.BigInteger(), nullable=False),
        sa.Column("micro_cents", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_late_corrections_org_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_late_corrections")),
    )
    for columns in (
        ["org_id", "counts_at"],
        ["team_id", "counts_at"],
        ["subject_id", "meter", "hour"],
    ):
        name = op.f(f"ix_late_corrections_{'_'.join(columns)}")
        op.create_index(name, "late_corrections", columns)
    for statement in _postgresql() if _is_postgresql() else _sqlite():
        op.execute(sa.text(statement))


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def _sqlite() -> list[str]:
    return [
        f"""
        CREATE TRIGGER late_corrections_{act.lower()} BEFORE {act} ON late_corrections
        BEGIN
            SELECT RAISE(ABORT, '{_TOLD}');
        END
        """
        for act in ("UPDATE", "DELETE")
    ]


def _postgresql() -> list[str]:
    refuse = f"""
        CREATE FUNCTION keep_late_corrections() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION '{_TOLD}';
        END $$
    """
    trigger = """
        CREATE TRIGGER late_corrections_keep BEFORE UPDATE OR DELETE ON late_corrections
        FOR EACH ROW EXECUTE FUNCTION keep_late_corrections()
    """
    return [refuse, trigger]


def downgrade() -> None:
    op.drop_table("late_corrections")
    if _is_postgresql():
        op.execute("DROP FUNCTION keep_late_corrections()")
