"""Which broken constraint means what: the sentence a caller reads when the database refuses."""

import re
from typing import Final

from sqlalchemy.exc import IntegrityError

from storage.errors import StateConflict

SENTENCES: Final = {
    "organizations.slug": "an organization with this slug already exists",
    "users.email": "a user with this email address already exists",
    "passkeys.credential_id": "this passkey was added already",
    "memberships.org_id, memberships.user_id": "the user is already a member",
    "baa_signatures.org_id, baa_signatures.version": "this version of the BAA is signed already",
    "enterprise_orgs.org_id": "the organization is in an enterprise already",
    "teams.org_id, teams.slug": "a team with this slug already exists",
    "custom_roles.org_id, custom_roles.name": "a role with this name already exists",
    "role_assignments.role_id, role_assignments.user_id, role_assignments.within": (
        "the role is assigned to this member there already"
    ),
    "service_accounts.org_id, service_accounts.name": (
        "a service account with this name already exists"
    ),
    (
        "workload_identities.service_account_id, workload_identities.issuer,"
        " workload_identities.audience, workload_identities.subject"
    ): "the service account trusts this issuer, audience and subject already",
    "scim_users.org_id, scim_users.user_name_key": "a user with this userName already exists",
    "scim_users.org_id, scim_users.user_id": "the account is provisioned by another user already",
    "scim_groups.org_id, scim_groups.name_key": "a group with this displayName already exists",
    "credits.source": "a credit was granted for this already",
    "programme_applications.org_id, programme_applications.programme": (
        "an application for this program is pending or approved already"
    ),
    "invoices.org_id, invoices.month": "the invoice of this month is made already",
    "referral_codes.org_id": "the organization has a referral code already",
    "referrals.referred_org_id": "the organization was referred already",
    "projects.org_id, projects.slug": "a project with this slug already exists",
    "domains.instance_id, domains.hostname": "the instance already has this domain",
    "sso_connections.org_id, sso_connections.name": (
        "an SSO connection with this name already exists"
    ),
    "sso_identities.connection_id, sso_identities.subject": (
        "this person signs in for the first time, twice at the same moment; try again"
    ),
    "sso_domains.org_id, sso_domains.domain": "the organization has claimed this domain already",
    "sso_domains.domain": "the domain is verified by another organization",
    "migrations.instance_id": "a migration is being made into the instance",
    "instances.project_id, instances.name": "the project already has an instance with this name",
}
"""By columns, as SQLite names them."""

CONSTRAINTS: Final = {
    "uq_organizations_slug": "organizations.slug",
    "uq_users_email": "users.email",
    "uq_passkeys_credential_id": "passkeys.credential_id",
    "pk_memberships": "memberships.org_id, memberships.user_id",
    "pk_baa_signatures": "baa_signatures.org_id, baa_signatures.version",
    "pk_enterprise_orgs": "enterprise_orgs.org_id",
    "uq_teams_org_id_slug": "teams.org_id, teams.slug",
    "uq_custom_roles_org_id_name": "custom_roles.org_id, custom_roles.name",
    "uq_role_assignments_role_id_user_id_within": (
        "role_assignments.role_id, role_assignments.user_id, role_assignments.within"
    ),
    "uq_service_accounts_org_id_name": "service_accounts.org_id, service_accounts.name",
    "uq_workload_identities_trust": (
        "workload_identities.service_account_id, workload_identities.issuer,"
        " workload_identities.audience, workload_identities.subject"
    ),
    "uq_scim_users_org_id_user_name_key": "scim_users.org_id, scim_users.user_name_key",
    "pk_scim_users": "scim_users.org_id, scim_users.user_id",
    "uq_scim_groups_org_id_name_key": "scim_groups.org_id, scim_groups.name_key",
    "uq_credits_source": "credits.source",
    "ix_programme_applications_in_force": (
        "programme_applications.org_id, programme_applications.programme"
    ),
    "ix_invoices_in_force": "invoices.org_id, invoices.month",
    "pk_referral_codes": "referral_codes.org_id",
    "uq_referrals_referred_org_id": "referrals.referred_org_id",
    "uq_projects_org_id_slug": "projects.org_id, projects.slug",
    "ix_domains_instance_id_hostname": "domains.instance_id, domains.hostname",
    "uq_sso_connections_org_id_name": "sso_connections.org_id, sso_connections.name",
    "pk_sso_identities": "sso_identities.connection_id, sso_identities.subject",
    "ix_sso_domains_org_id_domain": "sso_domains.org_id, sso_domains.domain",
    "ix_sso_domains_verified": "sso_domains.domain",
    "ix_migrations_open": "migrations.instance_id",
    "ix_instances_live_name": "instances.project_id, instances.name",
}
"""By constraint, as PostgreSQL names them."""

_WITH_ANOTHER: Final = frozenset(
    {
        "23503",
        "23505",
        "SQLITE_CONSTRAINT_FOREIGNKEY",
        "SQLITE_CONSTRAINT_PRIMARYKEY",
        "SQLITE_CONSTRAINT_UNIQUE",
    }
)
"""How PostgreSQL and SQLite call what two records break together: foreign keys, uniqueness."""
_UNIQUE: Final = re.compile(r"UNIQUE constraint failed: (.+)")


def of(error: IntegrityError) -> StateConflict | None:
    """The conflict with another record behind an integrity error.

    None for a NULL or a value that the schema forbids: that is a fault of the program.
    """
    diagnostic = getattr(error.orig, "diag", None)
    if diagnostic is not None:
        broken = diagnostic.sqlstate
        columns = CONSTRAINTS.get(diagnostic.constraint_name or "", "")
    else:
        broken = getattr(error.orig, "sqlite_errorname", None)
        found = _UNIQUE.search(str(error.orig))
        columns = found.group(1) if found else ""
    if broken not in _WITH_ANOTHER:
        return None
    return StateConflict(SENTENCES.get(columns, "the change conflicts with another record"))
