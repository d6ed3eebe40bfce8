"""Whatever two records cannot have alike is refused in a sentence of its own, or says why not."""

from sqlalchemy import UniqueConstraint

from storage import conflicts, records
from storage.columns import Record

OUR_OWN = {
    "ix_audit_org_id_seq": "whoever gives a number holds the head of the chain",
    "ix_backups_instance_id_slot": "whoever comes second leaves the slot to the first",
    "ix_domains_verified_hostname": "the workflow that verifies one looks, and tells the domain",
    "ix_spans_open": "the database ends the one before it begins another",
    "ix_payer_spans_lasts": "an organization is attached to one parent at a time",
    "ix_plan_spans_open": "the database ends the one before it begins another",
    "uq_account_tokens_token_hash": "256 random bits",
    "uq_api_keys_token_hash": "256 random bits",
    "uq_device_logins_device_code_hash": "256 random bits",
    "uq_device_logins_user_code_hash": "34 random bits, of the few that wait",
    "uq_instances_host": "made of a new id",
    "uq_invites_token_hash": "256 random bits",
    "uq_project_members_project_id_user_id": "put while the organization is held",
    "uq_scim_tokens_token_hash": "256 random bits",
    "uq_sessions_token_hash": "256 random bits",
    "uq_invoices_number": "whoever gives a number holds its series",
    "uq_invoice_payments_provider_invoice_id": "the payment provider gives each id once",
    "uq_referral_codes_code": "50 random bits",
    "uq_work_operation": "a new id",
    "uq_work_schedule_slot": "whoever comes second leaves the turn to the first",
}
"""Those that no caller's value can break."""


def unique() -> set[str]:
    assert records.__all__
    tables = Record.metadata.sorted_tables
    constraints = (one for table in tables for one in table.constraints)
    named = {str(one.name) for one in constraints if isinstance(one, UniqueConstraint)}
    return named | {str(one.name) for table in tables for one in table.indexes if one.unique}


def test_each_has_a_sentence_or_is_our_own() -> None:
    keys = {name for name in conflicts.CONSTRAINTS if name.startswith("pk_")}
    assert unique() == (set(conflicts.CONSTRAINTS) - keys) | set(OUR_OWN)
    assert not set(OUR_OWN) & set(conflicts.CONSTRAINTS)
    assert set(conflicts.CONSTRAINTS.values()) == set(conflicts.SENTENCES)
