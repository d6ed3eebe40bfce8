"""Plan spans, meters, spending caps, and what organizations were told of these."""

import sqlalchemy as sa
from alembic import op

from storage.columns import DatabaseClock, Timestamp

revision = "202611301440"
down_revision = "202611300800"

_OPEN = sa.text("until IS NULL")
_COLUMNS = "org_id, plan, since, created_at"
_SPAN_TOLD = "of a plan span its end is written, once, and nothing else changes"
_ENTRY_TOLD = "what was metered is corrected by another entry, and never changed"


def upgrade() -> None:
    _plan_spans()
    _meters()
    op.create_table(
        "spending_notices",
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("month", sa.String(), nullable=False),
        sa.Column("percent", sa.Integer(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_spending_notices_org_id")
        ),
        sa.PrimaryKeyConstraint("org_id", "month", "percent", name=op.f("pk_spending_notices")),
    )
    op.add_column("organizations", sa.Column("spending_cap_cents", sa.BigInteger(), nullable=True))
    op.add_column(
        "organizations",
        sa.Column("spending_cap_on_reach", sa.String(), server_default="refuse", nullable=False),
    )
    op.add_column("cells", sa.Column("egress_metered_hour", Timestamp(), nullable=True))
    op.create_index(op.f("ix_spans_org_id_until"), "spans", ["org_id", "until"])
    dialect = op.get_bind().dialect
    clock = str(DatabaseClock().compile(dialect=dialect))
    for statement in _postgresql(clock) if dialect.name == "postgresql" else _sqlite(clock):
        op.execute(sa.text(statement.replace(":=", r"\:=")))
    # Nobody owes fees for a time in which nobody counted them.
    op.execute(
        f"INSERT INTO plan_spans ({_COLUMNS})"  # noqa: S608 - of constants
        f" SELECT id, plan, {clock}, {clock} FROM organizations WHERE status = 'open' ORDER BY id"
    )


def _plan_spans() -> None:
    op.create_table(
        "plan_spans",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("since", Timestamp(), nullable=False),
        sa.Column("until", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_plan_spans_org_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plan_spans")),
    )
    op.create_index(
        "ix_plan_spans_open",
        "plan_spans",
        ["org_id"],
        unique=True,
        postgresql_where=_OPEN,
        sqlite_where=_OPEN,
    )
    op.create_index(op.f("ix_plan_spans_org_id_until"), "plan_spans", ["org_id", "until"])


def _meters() -> None:
    op.create_table(
        "meter_entries",
        sa.Column("subject_id", sa.String(), nullable=False),
        sa.Column("meter", sa.String(), nullable=False),
        sa.Column("hour", Timestamp(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("team_id", sa.String(), nullable=True),
        sa.Column("region", sa.String(), nullable=True),
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("quantity", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_meter_entries_org_id")
        ),
        sa.PrimaryKeyConstraint(
            "subject_id", "meter", "hour", "seq", name=op.f("pk_meter_entries")
        ),
    )
    op.create_index(op.f("ix_meter_entries_org_id_hour"), "meter_entries", ["org_id", "hour"])
    op.create_index(op.f("ix_meter_entries_team_id_hour"), "meter_entries", ["team_id", "hour"])
    op.create_table(
        "metered_hours",
        sa.Column("hour", Timestamp(), autoincrement=False, nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("hour", name=op.f("pk_metered_hours")),
    )


# As those of spans of instances: a clock that was set back makes a span of no length.
def _sqlite(clock: str) -> list[str]:
    last = "(SELECT max(s.until) FROM plan_spans s WHERE s.org_id = NEW.id)"
    begin = f"""
        CREATE TRIGGER organizations_begin_plan_span AFTER INSERT ON organizations
        WHEN NEW.status = 'open'
        BEGIN
            INSERT INTO plan_spans ({_COLUMNS}) VALUES (NEW.id, NEW.plan, {clock}, {clock});
        END
    """  # noqa: S608 - of constants
    change = f"""
        CREATE TRIGGER organizations_change_plan_span AFTER UPDATE OF plan, status ON organizations
        WHEN (NEW.plan, NEW.status) IS NOT (OLD.plan, OLD.status)
        BEGIN
            UPDATE plan_spans SET until = max(since, {clock})
                WHERE org_id = NEW.id AND until IS NULL;
            INSERT INTO plan_spans ({_COLUMNS})
                SELECT NEW.id, NEW.plan, max({clock}, coalesce({last}, 0)), {clock}
                WHERE NEW.status = 'open';
        END
    """  # noqa: S608
    keep_span = f"""
        CREATE TRIGGER plan_spans_keep AFTER UPDATE ON plan_spans
        WHEN OLD.until IS NOT NULL
            OR (NEW.id, NEW.org_id, NEW.plan, NEW.since) IS NOT
               (OLD.id, OLD.org_id, OLD.plan, OLD.since)
        BEGIN
            SELECT RAISE(ABORT, '{_SPAN_TOLD}');
        END
    """
    keep_entry = f"""
        CREATE TRIGGER meter_entries_keep AFTER UPDATE ON meter_entries
        BEGIN
            SELECT RAISE(ABORT, '{_ENTRY_TOLD}');
        END
    """
    return [begin, change, keep_span, keep_entry]


def _postgresql(clock: str) -> list[str]:
    record = f"""
        CREATE FUNCTION record_plan_span() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            shown timestamptz := {clock};
            last timestamptz;
        BEGIN
            IF TG_OP = 'UPDATE' THEN
                UPDATE plan_spans SET until = greatest(since, shown)
                    WHERE org_id = NEW.id AND until IS NULL;
            END IF;
            IF NEW.status = 'open' THEN
                SELECT max(s.until) INTO last FROM plan_spans s WHERE s.org_id = NEW.id;
                INSERT INTO plan_spans ({_COLUMNS})
                    VALUES (NEW.id, NEW.plan, greatest(shown, last), shown);
            END IF;
            RETURN NULL;
        END $$
    """  # noqa: S608
    begin = """
        CREATE TRIGGER organizations_begin_plan_span AFTER INSERT ON organizations FOR EACH ROW
        EXECUTE FUNCTION record_plan_span()
    """
    change = """
        CREATE TRIGGER organizations_change_plan_span AFTER UPDATE OF plan, status ON organizations
        FOR EACH ROW WHEN ((NEW.plan, NEW.status) IS DISTINCT FROM (OLD.plan, OLD.status))
        EXECUTE FUNCTION record_plan_span()
    """
    refuse = [
        f"""
        CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION '{told}';
        END $$
        """
        for name, told in (("keep_plan_span", _SPAN_TOLD), ("keep_meter_entry", _ENTRY_TOLD))
    ]
    keep_span = """
        CREATE TRIGGER plan_spans_keep AFTER UPDATE ON plan_spans FOR EACH ROW
        WHEN (OLD.until IS NOT NULL
            OR (NEW.id, NEW.org_id, NEW.plan, NEW.since) IS DISTINCT FROM
               (OLD.id, OLD.org_id, OLD.plan, OLD.since))
        EXECUTE FUNCTION keep_plan_span()
    """
    keep_entry = """
        CREATE TRIGGER meter_entries_keep AFTER UPDATE ON meter_entries FOR EACH ROW
        EXECUTE FUNCTION keep_meter_entry()
    """
    return [record, begin, change, *refuse, keep_span, keep_entry]


def downgrade() -> None:
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    on = " ON organizations" if is_postgresql else ""
    for name in ("organizations_begin_plan_span", "organizations_change_plan_span"):
        op.execute(f"DROP TRIGGER {name}{on}")
    op.drop_index(op.f("ix_spans_org_id_until"), "spans")
    op.drop_column("cells", "egress_metered_hour")
    for column in ("spending_cap_on_reach", "spending_cap_cents"):
        op.drop_column("organizations", column)
    for table in ("spending_notices", "metered_hours", "meter_entries", "plan_spans"):
        op.drop_table(table)
    if is_postgresql:
        for name in ("record_plan_span", "keep_plan_span", "keep_meter_entry"):
            op.execute(f"DROP FUNCTION {name}()")
