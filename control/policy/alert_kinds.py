"""The kinds of alerts: what each is about, when it is raised, and when it is over."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final

INSTANCE: Final = "instance"
TEAM: Final = "team"
ORGANIZATION: Final = "organization"


@dataclass(frozen=True)
class AlertKind:
    """`raised_when` and `over_when` are read by people: docs/alerts.md has them.

    `hidden_by` are kinds that explain this one: while a critical alert of one of them is open, what
    happens is counted there. `critical_from` is how often in a row it happens before it is
    critical. `quiet_for` ends one that nothing else ends. `cause_member` is the member of an
    event's data that tells alerts of this kind about one subject apart. `has_letter`: whoever is to
    know gets an email of its own.
    """

    about: str
    raised_when: str
    over_when: str
    hidden_by: tuple[str, ...] = ()
    critical_from: int | None = None
    quiet_for: timedelta | None = None
    cause_member: str | None = None
    has_letter: bool = False


UNREACHABLE: Final = "instances_unreachable"
FAILED: Final = "instance_failed"
STORAGE: Final = "storage_filling"
CONNECTIONS: Final = "connections_saturated"
CERTIFICATE: Final = "certificate_expiring"
DOMAIN: Final = "domain_lost"
QUOTA: Final = "quota_threshold"
BUDGET: Final = "budget_threshold"
SPENDING: Final = "spending_cap_threshold"
SUSPENDED_KEY: Final = "api_key_suspended"
SIGN_INS: Final = "sign_ins_refused"
OWNER_ADDED: Final = "owner_added"
WEBHOOK: Final = "webhook_disabled"
SIEM: Final = "siem_delivery_interrupted"
SSO_DOMAIN: Final = "sso_domain_unverifiable"
SSO_PROVIDER: Final = "sso_provider_unreadable"
SSO_CERTIFICATE: Final = "sso_certificate_expiring"
_EXPLAINED: Final = (FAILED, UNREACHABLE)

KINDS: Final[Mapping[str, AlertKind]] = MappingProxyType(
    {
        FAILED: AlertKind(
            INSTANCE,
            "an operation on the instance failed (warning), or it is out of service (critical)",
            "it is ready, paused, resumed or resized",
            hidden_by=(UNREACHABLE,),
        ),
        "backup_failed": AlertKind(
            INSTANCE,
            "a backup failed; critical from the second in a row",
            "a backup is completed",
            hidden_by=_EXPLAINED,
            critical_from=2,
        ),
        "backup_archiving_interrupted": AlertKind(
            INSTANCE,
            "WAL is not archived (warning), or some is lost (critical)",
            "it is archived again, or archiving is turned off",
            hidden_by=_EXPLAINED,
        ),
        "backup_copies_interrupted": AlertKind(
            INSTANCE,
            "backups are not copied into the second store",
            "they are copied again, or copying is turned off",
            hidden_by=_EXPLAINED,
        ),
        "migration_failed": AlertKind(
            INSTANCE,
            "a migration into the instance failed",
            "a migration into it is completed",
            hidden_by=_EXPLAINED,
        ),
        STORAGE: AlertKind(
            INSTANCE,
            "its storage will soon be full, or is nearly full",
            "it is neither any more",
            hidden_by=_EXPLAINED,
        ),
        CONNECTIONS: AlertKind(
            INSTANCE,
            "for two hours its connections come close to the limit of its size",
            "they stay well below it for two hours",
            hidden_by=_EXPLAINED,
        ),
        CERTIFICATE: AlertKind(
            INSTANCE,
            "the certificate of a custom domain cannot be issued (warning) or renewed (info), or is"
            " about to expire",
            "it is issued or renewed, or the domain is removed",
            hidden_by=_EXPLAINED,
        ),
        DOMAIN: AlertKind(
            INSTANCE,
            "a custom domain is no longer verified, as it leads elsewhere; info where that is"
            " another instance of the organization",
            "it is verified again, or removed",
        ),
        BUDGET: AlertKind(
            TEAM,
            "the team has spent 50 % (info), 80 % (warning) or 100 % (critical) of its budget",
            "it is below every threshold again, or the month ends",
        ),
        UNREACHABLE: AlertKind(
            TEAM,
            "the cell that runs instances of the team does not respond",
            "it responds again",
        ),
        QUOTA: AlertKind(
            ORGANIZATION,
            "80 % (info) or all (warning) of a quota of the plan is used; one for each quota",
            "it is well below again",
            cause_member="resource",
        ),
        SPENDING: AlertKind(
            ORGANIZATION,
            "50 % (info), 80 % (warning) or all (critical) of the spending cap is spent",
            "less than that is spent of a cap that was raised, or the month ends",
        ),
        SUSPENDED_KEY: AlertKind(
            ORGANIZATION,
            "an API key was suspended, as it was found in public or was tried at many operations",
            "the key is unsuspended or revoked",
            cause_member="key_id",
            has_letter=True,
        ),
        SIGN_INS: AlertKind(
            ORGANIZATION,
            "too many wrong passwords (warning), or too many wrong codes after the right password"
            " (critical), were tried at the account of a member",
            "nothing of the kind happened for a day",
            quiet_for=timedelta(days=1),
        ),
        OWNER_ADDED: AlertKind(
            ORGANIZATION,
            "somebody became an owner of the organization",
            "a week has passed",
            quiet_for=timedelta(days=7),
        ),
        WEBHOOK: AlertKind(
            ORGANIZATION,
            "a webhook endpoint was disabled, as it answered 410, or only failed for days",
            "it is enabled again, or deleted",
            cause_member="webhook_id",
            has_letter=True,
        ),
        SIEM: AlertKind(
            ORGANIZATION,
            "a SIEM target has accepted nothing for 15 minutes",
            "it accepts again, or the delivery is disabled or removed",
            cause_member="delivery_id",
        ),
        SSO_DOMAIN: AlertKind(
            ORGANIZATION,
            "the TXT record of a verified SSO domain is missing; one for each domain",
            "the record is there again, or the domain is no longer verified or is released",
        ),
        SSO_PROVIDER: AlertKind(
            ORGANIZATION,
            "for a day it was not possible to read what the identity provider of an SSO connection"
            " publishes",
            "it is read again, or the connection is disabled or removed",
        ),
        SSO_CERTIFICATE: AlertKind(
            ORGANIZATION,
            "the last signing certificate of a SAML connection expires within 30 days (warning),"
            " within 7 days, or has expired (critical)",
            "one that lasts longer is recorded, or the connection is disabled or removed",
        ),
    }
)


def about(subject: str) -> tuple[str, ...]:
    """The kinds of alerts about instances, teams or organizations."""
    return tuple(name for name, kind in KINDS.items() if kind.about == subject)


OF_INSTANCES: Final = about(INSTANCE)
EMAILS: Final = ("none", "critical", "warning")
"""What an organization chooses to get by email: each with those before it."""
EMAIL_EVERY: Final = timedelta(minutes=10)
"""An organization gets one email about all that is new, and the next one no earlier, unless
something is critical and nothing was in that one."""


def is_emailed(kind: str, severity: str, chosen: str) -> bool:
    """Whether an alert is sent to somebody who chose that of EMAILS."""
    wanted = EMAILS[: EMAILS.index(chosen) + 1]
    return severity in wanted and not KINDS[kind].has_letter
