"""How many of what a user, an organization and an instance may have; whoever asks has counted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from control.policy.plans import Plan
from control.policy.violations import Violation, gigabytes, wrong

GONE_TIMES: Final = 5
"""How many times a plan's quotas its deleted instances, not erased yet, may hold."""
ORGS_CLOSED_MAX: Final = 20
"""How many organizations a user may close in ORGS_CLOSED_WITHIN and still create one."""
INVITES_A_DAY_MAX: Final = 200
ROLES_MAX: Final = 100
ASSIGNMENTS_MAX: Final = 5_000
SCIM_TOKENS_MAX: Final = 5
SSO_CONNECTIONS_MAX: Final = 10
SSO_DOMAINS_MAX: Final = 100
"""That an organization claims at a time, verified or not."""
GROUPS_MAX: Final = 2_000
"""Of an organization, those that SCIM has pushed and those that sign-ins have claimed together."""
SERVICE_ACCOUNTS_MAX: Final = 2_000
SUPPORT_GRANTS_MAX: Final = 20
SIEM_DELIVERIES_MAX: Final = 5
WORKLOAD_IDENTITIES_MAX: Final = 20
"""Of one service account."""
KEYS_OF_JOBS_MAX: Final = 200
"""That jobs have of one service account, not expired."""
INVITES_TO_ONE_A_DAY_MAX: Final = 3
APPROVALS_MAX: Final = 200
"""Orders of one organization that wait for approval at once."""
APPROVALS_OF_ONE_MAX: Final = 20
"""Of those, the orders of one person, whichever of their API keys asked."""
LETTERS_A_DAY_MAX: Final = 5
PASSKEYS_MAX: Final = 20
"""Of one kind, to one account and to one address."""
WEBHOOKS_MAX: Final = 10
REDELIVERED_MAX: Final = 10_000
"""Deliveries of a webhook endpoint that one request sends again."""
ORGS_CLOSED_WITHIN: Final = timedelta(days=30)
DOMAINS_MAX: Final = 20
"""Of one instance; a cell takes no more."""


WATCHED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "instances": "instances_max",
        "storage_bytes": "storage_bytes_max",
        "seats": "seats_max",
        "projects": "projects_max",
        "api_keys": "api_keys_max",
        "backup_bytes": "backup_bytes_max",
    }
)
"""The members of a plan whose organizations are told how much of each they use, by resource.

Not teams: on most plans the one that every organization has is all there may be.
"""


@dataclass(frozen=True)
class Usage:
    """What the org's live instances use already, and what those that are gone still hold."""

    instances: int = 0
    storage_bytes: int = 0
    gone: int = 0
    gone_storage_bytes: int = 0


def check_return(plan: Plan, usage: Usage) -> list[Violation]:
    """Everything wrong with a deleted instance coming back; `usage` counts it already."""
    found: list[Violation] = []
    if plan.instances_max is not None and usage.instances > plan.instances_max:
        message = (
            f"the {plan.id} plan allows {plan.instances_max} instances, and with this one "
            f"{usage.instances} are live; delete one or change the plan"
        )
        found.append(wrong("", "quota", message))
    limit = plan.storage_bytes_max
    if limit is not None and usage.storage_bytes > limit:
        message = (
            f"the {plan.id} plan allows {gigabytes(limit)} of storage in all, and with this "
            f"instance it would be {gigabytes(usage.storage_bytes)}; delete an instance or "
            "change the plan"
        )
        found.append(wrong("", "quota", message))
    return found


def check_one_more(plan: Plan, usage: Usage) -> Iterator[Violation]:
    """Whether one more instance may be ordered, whatever its storage."""
    if plan.instances_max is not None and usage.instances >= plan.instances_max:
        message = (
            f"the {plan.id} plan allows {plan.instances_max} instances and you have "
            f"{usage.instances}; delete one or change the plan"
        )
        yield wrong("", "quota", message)
    yield from _check_gone(plan, usage)


def _check_gone(plan: Plan, usage: Usage) -> Iterator[Violation]:
    """Deleted instances hold their storage until they are erased, so they are limited too."""
    too_many = plan.instances_max is not None and usage.gone >= GONE_TIMES * plan.instances_max
    limit = plan.storage_bytes_max
    if too_many or (limit is not None and usage.gone_storage_bytes >= GONE_TIMES * limit):
        message = (
            f"your {usage.gone} deleted instances still hold {gigabytes(usage.gone_storage_bytes)}"
            f" of storage, {GONE_TIMES} times what the {plan.id} plan allows; erase one of them"
            " (`…/actions/erase`), or wait until their retention is over"
        )
        yield wrong("", "quota", message)


def check_more_storage(added_bytes: int, plan: Plan, usage: Usage) -> Iterator[Violation]:
    """Whether so much storage may be had in addition."""
    used = usage.storage_bytes
    if plan.storage_bytes_max is None or added_bytes <= 0:
        return
    if used + added_bytes > plan.storage_bytes_max:
        left = gigabytes(max(0, plan.storage_bytes_max - used))
        message = (
            f"the {plan.id} plan allows {gigabytes(plan.storage_bytes_max)} of storage in total "
            f"and {left} is left; ask for less, delete an instance or change the plan"
        )
        yield wrong("storage_bytes", "quota", message)


def orgs_max(plan: str, *, of_any_plan: int, of_free: int) -> dict[str | None, int]:
    """How many a user who creates one of this plan may own, by the plan counted; None: any."""
    limits: dict[str | None, int] = {"free": of_free} if plan == "free" else {}
    return limits | {None: of_any_plan}


def check_one_more_org(owned: int, limit: int, plan: str | None) -> list[Violation]:
    """Whether a user may own one more; those of `plan`, or of any, were counted."""
    if owned < limit:
        return []
    message = (
        f"you can own {limit} organizations{f' on the {plan} plan' if plan else ''};"
        " close one with `erase_everything`, or wait until the data of a closed one is"
        " erased"
    )
    return [wrong("", "quota", message)]


def check_closed_orgs(closed: int) -> list[Violation]:
    """Whether a user may create one who closed so many of theirs in ORGS_CLOSED_WITHIN."""
    if closed < ORGS_CLOSED_MAX:
        return []
    message = (
        f"you closed {ORGS_CLOSED_MAX} organizations in the last {ORGS_CLOSED_WITHIN.days} days;"
        " use one of yours, or wait"
    )
    return [wrong("", "quota", message)]


def check_one_more_project(plan: Plan, count: int) -> list[Violation]:
    if plan.projects_max is None or count < plan.projects_max:
        return []
    message = f"the {plan.id} plan allows {plan.projects_max} projects; delete one first"
    return [wrong("", "quota", message)]


def check_one_more_team(plan: Plan, count: int) -> list[Violation]:
    """Whether an organization that has `count` teams, Everyone among them, may have one more."""
    if plan.teams_max is None or count < plan.teams_max:
        return []
    message = (
        f"the {plan.id} plan allows {plan.teams_max} {'team' if plan.teams_max == 1 else 'teams'},"
        f" Everyone included, and you have {count}; change the plan to create more"
    )
    return [wrong("", "quota", message)]


def check_one_more_subsidiary(plan: Plan, count: int) -> list[Violation]:
    """Whether a parent that has `count` subsidiaries may have one more."""
    if count < plan.subsidiaries_max:
        return []
    message = (
        f"the {plan.id} plan allows {plan.subsidiaries_max} subsidiaries; detach one that is no"
        " longer part of the enterprise"
    )
    return [wrong("", "quota", message)]


def check_one_more_api_key(plan: Plan, count: int) -> list[Violation]:
    if plan.api_keys_max is None or count < plan.api_keys_max:
        return []
    message = f"the {plan.id} plan allows {plan.api_keys_max} API keys; revoke one first"
    return [wrong("", "quota", message)]


def check_one_more_role(count: int) -> list[Violation]:
    return _at_most(count, ROLES_MAX, "custom roles; delete one first")


def check_one_more_assignment(count: int) -> list[Violation]:
    return _at_most(count, ASSIGNMENTS_MAX, "assignments of custom roles; remove one first")


def check_one_more_service_account(count: int) -> list[Violation]:
    """`count` with those that are disabled: they stay, for what they did."""
    what = "service accounts, disabled ones included; give more keys to one that there is"
    return _at_most(count, SERVICE_ACCOUNTS_MAX, what)


def check_one_more_scim_token(count: int) -> list[Violation]:
    """`count` of those in force."""
    return _at_most(count, SCIM_TOKENS_MAX, "SCIM tokens in force; revoke one first")


def check_one_more_sso_connection(count: int) -> list[Violation]:
    return _at_most(count, SSO_CONNECTIONS_MAX, "SSO connections; delete one first")


def check_one_more_sso_domain(count: int) -> list[Violation]:
    """`count` of those that the organization claims."""
    if count < SSO_DOMAINS_MAX:
        return []
    message = f"an organization can claim {SSO_DOMAINS_MAX} SSO domains; release one first"
    return [wrong("", "quota", message)]


def check_one_more_group(count: int) -> list[Violation]:
    """`count` of pushed and claimed ones."""
    if count < GROUPS_MAX:
        return []
    return [wrong("", "quota", f"an organization can have {GROUPS_MAX:,} groups")]


def check_one_more_support_grant(count: int) -> list[Violation]:
    """`count` of those that are active."""
    return _at_most(count, SUPPORT_GRANTS_MAX, "active support grants; revoke one first")


def check_one_more_siem_delivery(count: int) -> list[Violation]:
    if count < SIEM_DELIVERIES_MAX:
        return []
    message = f"an organization can have {SIEM_DELIVERIES_MAX} SIEM deliveries; delete one first"
    return [wrong("", "quota", message)]


def check_one_more_workload_identity(count: int) -> list[Violation]:
    if count < WORKLOAD_IDENTITIES_MAX:
        return []
    message = f"a service account can have {WORKLOAD_IDENTITIES_MAX} workload identities"
    return [wrong("", "quota", f"{message}; delete one first, or use a pattern in a subject")]


def check_one_more_key_of_jobs(count: int) -> list[Violation]:
    """`count` of those in force, of one service account."""
    if count < KEYS_OF_JOBS_MAX:
        return []
    message = f"the jobs of a service account can have {KEYS_OF_JOBS_MAX} keys at a time"
    return [wrong("", "quota", f"{message}; wait until some expire, or use several accounts")]


def limit_of(plan: Plan, resource: str) -> int | None:
    """How much of one of WATCHED the plan allows; None: any."""
    limit: int | None = getattr(plan, WATCHED[resource])
    return limit


def check_one_more_webhook(count: int) -> list[Violation]:
    return _at_most(count, WEBHOOKS_MAX, "webhook endpoints; delete one first")


def check_redelivered(count: int) -> list[Violation]:
    """Whether so many deliveries may be sent again at once."""
    if count <= REDELIVERED_MAX:
        return []
    message = f"the span has more than {REDELIVERED_MAX:,} deliveries; choose a shorter one"
    return [wrong("to", "quota", message)]


def _at_most(count: int, limit: int, what: str) -> list[Violation]:
    if count < limit:
        return []
    return [wrong("", "quota", f"an organization can have {limit} {what}")]


def check_one_more_letter(sent: int) -> list[Violation]:
    """Whether one more may go to an address, or be asked for by a person, on this day."""
    if sent < LETTERS_A_DAY_MAX:
        return []
    message = f"{LETTERS_A_DAY_MAX} of these emails can be sent in 24 hours; try again tomorrow"
    return [wrong("email", "quota", message)]


def check_one_more_passkey(owned: int) -> list[Violation]:
    """Whether a person may have one more."""
    if owned < PASSKEYS_MAX:
        return []
    message = f"you can have {PASSKEYS_MAX} passkeys; remove one that you no longer use"
    return [wrong("", "quota", message)]


def check_one_more_invite(sent: int) -> list[Violation]:
    """`sent` in the last day: letters to people who did not ask for them."""
    if sent < INVITES_A_DAY_MAX:
        return []
    message = f"an organization can send {INVITES_A_DAY_MAX} invites in 24 hours; try again later"
    return [wrong("", "quota", message)]


def check_one_more_invite_to(sent: int) -> list[Violation]:
    """`sent` in the last day to one address, also those that were revoked."""
    if sent < INVITES_TO_ONE_A_DAY_MAX:
        return []
    message = f"{INVITES_TO_ONE_A_DAY_MAX} invites were sent to this address in 24 hours"
    return [wrong("email", "quota", f"{message}; try again later")]


def check_one_more_approval(of_org: int, of_requester: int) -> list[Violation]:
    """Whether somebody with so many orders that wait for approval may ask for one more."""
    if of_requester >= APPROVALS_OF_ONE_MAX:
        message = (
            f"{of_requester} of your orders wait for approval, and {APPROVALS_OF_ONE_MAX} can; have"
            " them decided first"
        )
        return [wrong("", "quota", message)]
    if of_org >= APPROVALS_MAX:
        message = (
            f"{of_org} orders of the organization wait for approval, and {APPROVALS_MAX} can; have"
            " them decided first"
        )
        return [wrong("", "quota", message)]
    return []


def check_one_more_domain(plan: Plan, count: int) -> list[Violation]:
    """Whether the plan lets an instance that has `count` domains have one more."""
    if not plan.custom_domains:
        message = f"custom domains need the solo plan or above; this is the {plan.id} plan"
        return [wrong("", "plan", message)]
    if count >= DOMAINS_MAX:
        message = f"an instance can have at most {DOMAINS_MAX} domains; remove one first"
        return [wrong("", "quota", message)]
    return []


def check_one_more_backup(plan: Plan, count: int, stored_bytes: int) -> list[Violation]:
    """Whether an organization that holds so many manual backups may have one more.

    `stored_bytes` is what all of its backups take, automatic ones included.
    """
    if count >= plan.manual_backups_max:
        message = (
            f"the {plan.id} plan allows {plan.manual_backups_max} manual backups and you have"
            f" {count}; delete one or change the plan"
        )
        return [wrong("", "quota", message)]
    if plan.backup_bytes_max is not None and stored_bytes >= plan.backup_bytes_max:
        message = (
            f"the {plan.id} plan allows {gigabytes(plan.backup_bytes_max)} of backups, and yours"
            f" take {gigabytes(stored_bytes)}; delete a manual one, keep automatic ones for fewer"
            " days (`backup-settings`), or change the plan"
        )
        return [wrong("", "quota", message)]
    return []
