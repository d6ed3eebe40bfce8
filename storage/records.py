"""Every record in one place, so that the metadata is whole before anything reads it."""

from storage.access.account_tokens import AccountToken
from storage.access.api_keys import ApiKey
from storage.access.baa_signatures import BaaSignature
from storage.access.budgets import BudgetNotice
from storage.access.enterprises import EnterpriseOrg
from storage.access.invites import Invite
from storage.access.key_leaks import KeyLeak
from storage.access.memberships import Membership
from storage.access.organizations import Organization
from storage.access.passkeys import Passkey, UsedChallenge
from storage.access.projects import Project
from storage.access.recovery_codes import RecoveryCode
from storage.access.right_changes import RightChange
from storage.access.sessions import UserSession
from storage.access.teams import Team, TeamMember
from storage.access.users import User
from storage.billing.billing_checks import BillingCheck
from storage.billing.credit_ledger import Credit, CreditUse
from storage.billing.customers import Customer
from storage.billing.invoice_runs import InvoiceRun
from storage.billing.invoices import Invoice, InvoiceDocument, InvoiceNumber
from storage.billing.late_corrections import LateCorrection
from storage.billing.meters import MeteredHour, MeterEntry
from storage.billing.payers import PayerSpan
from storage.billing.payments import InvoicePayment, PaymentCustomer, PaymentNotice
from storage.billing.plan_spans import PlanSpan
from storage.billing.programmes import ProgrammeApplication
from storage.billing.referrals import Referral, ReferralCode
from storage.billing.spending_notices import SpendingNotice
from storage.catalogue.cells import Cell
from storage.columns import Record
from storage.data.backup_copies import CopyStatus
from storage.data.backup_settings import BackupSettings
from storage.data.backups import Backup
from storage.data.migrations import Migration
from storage.data.recovery_windows import RecoveryWindow
from storage.data.restores import Restore
from storage.events.alerts import Alert
from storage.events.audit import AuditEntry
from storage.events.audit_chain import AuditHead
from storage.events.audit_publications import AuditPublication, PublishedHead
from storage.events.delivery_lanes import DeliveryLane
from storage.events.egress import EgressCount, EgressReport
from storage.events.events import Event, EventCount
from storage.events.siem_deliveries import SiemDelivery
from storage.events.webhook_deliveries import WebhookDelivery
from storage.events.webhook_endpoints import WebhookEndpoint
from storage.instances.approvals import Approval
from storage.instances.changes import Change
from storage.instances.instances import Instance
from storage.instances.one_time_urls import OneTimeUrl
from storage.instances.readings import Reading
from storage.instances.samples import Sample
from storage.instances.spans import BilledSpan
from storage.network.domains import Domain
from storage.network.networks import Network
from storage.rate_windows import RateWindow
from storage.replays import Replay
from storage.roles.oidc_issuers import OidcIssuer
from storage.roles.project_members import ProjectMember
from storage.roles.roles import CustomRole, RoleAssignment
from storage.roles.service_accounts import ServiceAccount
from storage.roles.support_grants import SupportGrant
from storage.roles.workload_identities import WorkloadIdentity
from storage.sso.connections import SsoConnection
from storage.sso.device_logins import DeviceLogin
from storage.sso.domains import SsoDomain
from storage.sso.identities import SsoIdentity
from storage.sso.made_accounts import SsoMadeAccount
from storage.sso.saml_assertions import SamlAssertion
from storage.sso.scim_groups import GroupClaim, ScimGroup, ScimGroupMember
from storage.sso.scim_tokens import ScimToken
from storage.sso.scim_users import ScimUser
from storage.sso.sign_ins import SsoSignIn
from storage.work import Work

__all__ = [
    "AccountToken",
    "Alert",
    "ApiKey",
    "Approval",
    "AuditEntry",
    "AuditHead",
    "AuditPublication",
    "BaaSignature",
    "Backup",
    "BackupSettings",
    "BilledSpan",
    "BillingCheck",
    "BudgetNotice",
    "Cell",
    "Change",
    "CopyStatus",
    "Credit",
    "CreditUse",
    "CustomRole",
    "Customer",
    "DeliveryLane",
    "DeviceLogin",
    "Domain",
    "EgressCount",
    "EgressReport",
    "EnterpriseOrg",
    "Event",
    "EventCount",
    "GroupClaim",
    "Instance",
    "Invite",
    "Invoice",
    "InvoiceDocument",
    "InvoiceNumber",
    "InvoicePayment",
    "InvoiceRun",
    "KeyLeak",
    "LateCorrection",
    "Membership",
    "MeterEntry",
    "MeteredHour",
    "Migration",
    "Network",
    "OidcIssuer",
    "OneTimeUrl",
    "Organization",
    "Passkey",
    "PayerSpan",
    "PaymentCustomer",
    "PaymentNotice",
    "PlanSpan",
    "ProgrammeApplication",
    "Project",
    "ProjectMember",
    "PublishedHead",
    "RateWindow",
    "Reading",
    "Record",
    "RecoveryCode",
    "RecoveryWindow",
    "Referral",
    "ReferralCode",
    "Replay",
    "Restore",
    "RightChange",
    "RoleAssignment",
    "SamlAssertion",
    "Sample",
    "ScimGroup",
    "ScimGroupMember",
    "ScimToken",
    "ScimUser",
    "ServiceAccount",
    "SiemDelivery",
    "SpendingNotice",
    "SsoConnection",
    "SsoDomain",
    "SsoIdentity",
    "SsoMadeAccount",
    "SsoSignIn",
    "SupportGrant",
    "Team",
    "TeamMember",
    "UsedChallenge",
    "User",
    "UserSession",
    "WebhookDelivery",
    "WebhookEndpoint",
    "Work",
    "WorkloadIdentity",
]
