"""Credits with programs and referrals, and the invoices that use them."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json, Timestamp

revision = "202611301450"
down_revision = "202611301440"

_IN_FORCE = sa.text("status IN ('pending', 'approved')")


def upgrade() -> None:
    _create_credits()
    _create_applications()
    _create_referrals()
    _create_invoices()
    _create_what_invoices_need()
    dialect = op.get_bind().dialect
    for statement in _postgresql() if dialect.name == "postgresql" else _sqlite():
        op.execute(sa.text(statement))


def _owned(table: str, column: str = "org_id") -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        [column], ["organizations.id"], name=op.f(f"fk_{table}_{column}")
    )


def _create_credits() -> None:
    op.create_table(
        "credits",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("amount_cents", sa.BigInteger(), nullable=False),
        sa.Column("used_cents", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('granted', 'programme', 'referral')", name=op.f("ck_credits_kind")
        ),
        sa.CheckConstraint("amount_cents > 0", name=op.f("ck_credits_amount_cents")),
        sa.CheckConstraint(
            "used_cents >= 0 AND used_cents <= amount_cents", name=op.f("ck_credits_used_cents")
        ),
        _owned("credits"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_credits")),
        sa.UniqueConstraint("source", name=op.f("uq_credits_source")),
    )
    op.create_index(op.f("ix_credits_org_id_id"), "credits", ["org_id", "id"])
    op.create_table(
        "credit_uses",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("credit_id", sa.String(), nullable=False),
        sa.Column("invoice_id", sa.String(), nullable=False),
        sa.Column("amount_cents", sa.BigInteger(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint("amount_cents <> 0", name=op.f("ck_credit_uses_amount_cents")),
        _owned("credit_uses"),
        sa.ForeignKeyConstraint(
            ["credit_id"], ["credits.id"], name=op.f("fk_credit_uses_credit_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_credit_uses")),
    )
    for column in ("credit_id", "invoice_id", "org_id"):
        op.create_index(op.f(f"ix_credit_uses_{column}"), "credit_uses", [column])


def _create_applications() -> None:
    table = "programme_applications"
    op.create_table(
        table,
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("programme", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("applicant_id", sa.String(), nullable=False),
        sa.Column("website", sa.String(), nullable=True),
        sa.Column("statement", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.Column("decided_at", Timestamp(), nullable=True),
        sa.Column("credit_id", sa.String(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "status IN ('pending', 'approved', 'declined')", name=op.f(f"ck_{table}_status")
        ),
        _owned(table),
        sa.ForeignKeyConstraint(
            ["applicant_id"], ["users.id"], name=op.f(f"fk_{table}_applicant_id")
        ),
        sa.ForeignKeyConstraint(["credit_id"], ["credits.id"], name=op.f(f"fk_{table}_credit_id")),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    )
    for column in ("org_id", "status"):
        op.create_index(op.f(f"ix_{table}_{column}_id"), table, [column, "id"])
    op.create_index(
        "ix_programme_applications_in_force",
        table,
        ["org_id", "programme"],
        unique=True,
        postgresql_where=_IN_FORCE,
        sqlite_where=_IN_FORCE,
    )


def _create_referrals() -> None:
    op.create_table(
        "referral_codes",
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("code", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        _owned("referral_codes"),
        sa.PrimaryKeyConstraint("org_id", name=op.f("pk_referral_codes")),
        sa.UniqueConstraint("code", name=op.f("uq_referral_codes_code")),
    )
    op.create_table(
        "referrals",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("referred_org_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("credited_cents", sa.Integer(), nullable=False),
        sa.Column("ended_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "status IN ('pending', 'credited', 'refused')", name=op.f("ck_referrals_status")
        ),
        _owned("referrals"),
        _owned("referrals", "referred_org_id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_referrals")),
        sa.UniqueConstraint("referred_org_id", name=op.f("uq_referrals_referred_org_id")),
    )
    op.create_index(op.f("ix_referrals_org_id_id"), "referrals", ["org_id", "id"])


def _create_invoices() -> None:
    op.create_table(
        "invoices",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("month", sa.String(), nullable=False),
        sa.Column("number", sa.String(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("lines", Json, nullable=False),
        sa.Column("credits", Json, nullable=False),
        sa.Column("subtotal_cents", sa.BigInteger(), nullable=False),
        sa.Column("credits_cents", sa.BigInteger(), nullable=False),
        sa.Column("tax_category", sa.String(), nullable=False),
        sa.Column("tax_rate", sa.Integer(), nullable=False),
        sa.Column("tax_reason", sa.String(), nullable=True),
        sa.Column("tax_cents", sa.BigInteger(), nullable=False),
        sa.Column("total_cents", sa.BigInteger(), nullable=False),
        sa.Column("issuer", Json, nullable=False),
        sa.Column("customer", Json, nullable=False),
        sa.Column("issued_at", Timestamp(), nullable=False),
        sa.Column("due_at", Timestamp(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("paid_at", Timestamp(), nullable=True),
        sa.Column("voided_at", Timestamp(), nullable=True),
        sa.Column("void_reason", sa.String(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint("status IN ('open', 'paid', 'void')", name=op.f("ck_invoices_status")),
        _owned("invoices"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invoices")),
        sa.UniqueConstraint("org_id", "month", name=op.f("uq_invoices_org_id_month")),
        sa.UniqueConstraint("number", name=op.f("uq_invoices_number")),
    )
    for column in ("org_id", "month"):
        op.create_index(op.f(f"ix_invoices_{column}_id"), "invoices", [column, "id"])


def _create_what_invoices_need() -> None:
    op.create_table(
        "invoice_documents",
        sa.Column("invoice_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("pdf", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        _owned("invoice_documents"),
        sa.ForeignKeyConstraint(
            ["invoice_id"], ["invoices.id"], name=op.f("fk_invoice_documents_invoice_id")
        ),
        sa.PrimaryKeyConstraint("invoice_id", name=op.f("pk_invoice_documents")),
    )
    op.create_table(
        "invoice_numbers",
        sa.Column("series", sa.String(), nullable=False),
        sa.Column("last", sa.Integer(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("series", name=op.f("pk_invoice_numbers")),
    )
    op.create_table(
        "invoice_runs",
        sa.Column("month", sa.String(), nullable=False),
        sa.Column("after", sa.String(), nullable=False),
        sa.Column("is_done", sa.Boolean(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("month", name=op.f("pk_invoice_runs")),
    )
    op.create_table(
        "customers",
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("details", Json, nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        _owned("customers"),
        sa.PrimaryKeyConstraint("org_id", name=op.f("pk_customers")),
    )


# The sum of a grant's uses is counted by the database, so that its constraint holds for whatever is
# written by whomever; of a grant nothing else changes, and of a use nothing at all.
_FIXED = ("id", "org_id", "kind", "amount_cents", "currency", "reason", "source", "expires_at")
_SUM = "(SELECT coalesce(sum(amount_cents), 0) FROM credit_uses WHERE credit_id = NEW.id)"
_TOLD = "credits and their uses are only added"
# Of an invoice only what becomes of it changes, once.
_KEPT = (
    *("id", "org_id", "month", "number", "currency", "subtotal_cents", "credits_cents"),
    *("tax_category", "tax_rate", "tax_reason", "tax_cents", "total_cents", "issued_at", "due_at"),
    *("created_at", "lines", "credits", "issuer", "customer"),
)
_INVOICES_TOLD = "an invoice stays as it is: of an open one is noted that it is paid, or void"


def _own(row: str) -> str:
    return f"({', '.join(f'{row}.{name}' for name in (*_FIXED, 'created_at'))})"


def _invoice(row: str) -> str:
    return f"({', '.join(f'{row}.{name}' for name in _KEPT)})"


def _sqlite() -> list[str]:
    count = """
        CREATE TRIGGER credit_uses_count AFTER INSERT ON credit_uses
        BEGIN
            UPDATE credits SET used_cents = used_cents + NEW.amount_cents
                WHERE id = NEW.credit_id AND org_id = NEW.org_id;
            SELECT RAISE(ABORT, 'the credit is of another organization') WHERE changes() = 0;
        END
    """
    keep = f"""
        CREATE TRIGGER credits_keep AFTER UPDATE ON credits
        WHEN {_own("NEW")} IS NOT {_own("OLD")} OR NEW.used_cents <> {_SUM}
        BEGIN
            SELECT RAISE(ABORT, '{_TOLD}');
        END
    """
    begin = f"""
        CREATE TRIGGER credits_begin AFTER INSERT ON credits WHEN NEW.used_cents <> 0
        BEGIN
            SELECT RAISE(ABORT, '{_TOLD}');
        END
    """
    acts = ("credits", "DELETE"), ("credit_uses", "UPDATE"), ("credit_uses", "DELETE")
    others = [
        f"""
        CREATE TRIGGER {table}_{act.lower()} BEFORE {act} ON {table}
        BEGIN
            SELECT RAISE(ABORT, '{_TOLD}');
        END
        """
        for table, act in acts
    ]
    changed = f"{_invoice('NEW')} IS NOT {_invoice('OLD')} OR OLD.status <> 'open'"
    of_invoices = [
        f"""
        CREATE TRIGGER {table}_{act.lower()} BEFORE {act} ON {table} WHEN {when}
        BEGIN
            SELECT RAISE(ABORT, '{_INVOICES_TOLD}');
        END
        """
        for table, act, when in (
            ("invoices", "UPDATE", changed),
            ("invoices", "DELETE", "true"),
            ("invoice_documents", "UPDATE", "true"),
            ("invoice_documents", "DELETE", "true"),
        )
    ]
    return [count, keep, begin, *others, *of_invoices]


def _postgresql() -> list[str]:
    refuse = f"""
        CREATE FUNCTION keep_credits() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION '{_TOLD}';
        END $$
    """
    count = """
        CREATE FUNCTION count_credit_use() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            UPDATE credits SET used_cents = used_cents + NEW.amount_cents
                WHERE id = NEW.credit_id AND org_id = NEW.org_id;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'the credit is of another organization';
            END IF;
            RETURN NULL;
        END $$
    """
    check = f"""
        CREATE FUNCTION check_credit() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF {_own("NEW")} IS DISTINCT FROM {_own("OLD")} OR NEW.used_cents <> {_SUM} THEN
                RAISE EXCEPTION '{_TOLD}';
            END IF;
            RETURN NULL;
        END $$
    """
    return [refuse, count, check, *_postgresql_triggers()]


def _postgresql_triggers() -> list[str]:
    changed = f"{_invoice('NEW')} IS DISTINCT FROM {_invoice('OLD')} OR OLD.status <> 'open'"
    refuse_invoice = f"""
        CREATE FUNCTION keep_invoices() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION '{_INVOICES_TOLD}';
        END $$
    """
    triggers = (
        ("invoices_update BEFORE UPDATE ON invoices", f"WHEN ({changed})", "keep_invoices"),
        ("invoices_delete BEFORE DELETE ON invoices", "", "keep_invoices"),
        (
            "invoice_documents_keep BEFORE UPDATE OR DELETE ON invoice_documents",
            "",
            "keep_invoices",
        ),
        ("credit_uses_count AFTER INSERT ON credit_uses", "", "count_credit_use"),
        ("credits_keep AFTER UPDATE ON credits", "", "check_credit"),
        ("credits_begin AFTER INSERT ON credits", "WHEN (NEW.used_cents <> 0)", "keep_credits"),
        ("credits_delete BEFORE DELETE ON credits", "", "keep_credits"),
        ("credit_uses_keep BEFORE UPDATE OR DELETE ON credit_uses", "", "keep_credits"),
    )
    return [
        refuse_invoice,
        *(
            f"CREATE TRIGGER {begins} FOR EACH ROW {where} EXECUTE FUNCTION {function}()"
            for begins, where, function in triggers
        ),
    ]


def downgrade() -> None:
    of_invoices = ("customers", "invoice_runs", "invoice_numbers", "invoice_documents", "invoices")
    of_credits = ("programme_applications", "credit_uses", "credits")
    for table in (*of_invoices, "referrals", "referral_codes", *of_credits):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        for name in ("keep_credits", "count_credit_use", "check_credit", "keep_invoices"):
            op.execute(f"DROP FUNCTION {name}()")
