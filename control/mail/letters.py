"""The letters there are, as plain text."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Self


@dataclass(frozen=True)
class Letter:
    """To one person; `text` has lines of whatever length."""

    to: str
    subject: str
    text: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> Self:
        return cls(**told)


def invitation(
    *, to: str, by: str, org: str, role: str, token: str, until: str, base_url: str
) -> Letter:
    """Names are of tenants: they stand in quotes, so that none is taken for a word of ours."""
    by, org = (quotable(name) for name in (by, org))
    return Letter(
        to=to,
        subject=f'Invitation to the organization "{org}"',
        text=f"""\
"{by}" invites you to join the organization "{org}" as {role}, on the database service at
{base_url}

Open this page to create an account, or to sign in and accept:

    {base_url.rstrip("/")}/account/invite?token={token}

Or use the command line. Tell it where the service is:

    export MENAGERIE_BASE_URL={base_url}

If you have an account with this email address, sign in and accept:

    menagerie login --email {to}
    menagerie invites accept {token}

If you have none yet, create one, which accepts the invitation too (type your new password, of at
least 12 characters, after the command):

    menagerie users create --invite-token {token} --name "Your Name" --password -

The invitation is valid once, until {until}. If you do not know the sender, ignore this message:
nothing happens unless you accept.
""",
    )


def leaked_key(
    *, to: str, org: str, key: tuple[str, str, str], place: str, base_url: str
) -> Letter:
    """`key` is its id, its name and how it begins. The place is a stranger's words."""
    key_id, name, prefix = key
    org, name, place = (quotable(text) for text in (org, name, place))
    return Letter(
        to=to,
        subject=f'An API key of "{org}" was found in public and is suspended',
        text=f"""\
A secret scanner found the API key "{name}" ({key_id}, which begins with {prefix}) of the
organization "{org}" in public:

    "{place}"

The key is suspended on the database service at
{base_url}

Programs that use it are refused until you decide. Whoever has seen the key can use it as soon as it
is unsuspended, so replace it:

1. Create a new key (menagerie api-keys create) and give it to the programs that need it.
2. Revoke the one that leaked: menagerie api-keys revoke {key_id}
3. Look at what was done with it: menagerie audit list --actor-id {key_id}
""",
    )


def probing_key(*, to: str, org: str, key: tuple[str, str, str], base_url: str) -> Letter:
    """`key` is its id, its name and how it begins."""
    key_id, name, prefix = key
    org, name = quotable(org), quotable(name)
    return Letter(
        to=to,
        subject=f'An API key of "{org}" is suspended: it was tried at many operations',
        text=f"""\
The API key "{name}" ({key_id}, which begins with {prefix}) of the organization "{org}"
was tried at many operations that it has no permission for, as somebody does who has stolen a key
and wants to know what it is good for. It is suspended on the database service at
{base_url}

Programs that use it are refused until you decide.

1. Look at what was done with it: menagerie audit list --actor-id {key_id}
2. If it was a program of yours, give it a key with the permissions that it needs, or put this one
   in force again: menagerie api-keys unsuspend {key_id}
3. If not, create a new key (menagerie api-keys create) and revoke this one:
   menagerie api-keys revoke {key_id}
""",
    )


def webhook_disabled(
    *, to: str, org: str, webhook: tuple[str, str], since: datetime | None, base_url: str
) -> Letter:
    """`webhook` is its id and its host; `since` when it began to fail, None where it is gone."""
    webhook_id, host = webhook
    org = quotable(org)
    why = (
        "answered that it is gone (410)"
        if since is None
        else f"has answered no delivery as it should since {_moment(since)}"
    )
    return Letter(
        to=to,
        subject=f'A webhook endpoint of "{org}" is disabled',
        text=f"""\
The webhook endpoint {webhook_id} of the organization "{org}", at {host},
{why}. It is disabled on the database service at
{base_url}

Deliveries that were waiting are dropped, and no events are sent to it until somebody enables it.

1. See what came back: menagerie webhooks deliveries {webhook_id}
2. Mend the receiver, or change the URL.
3. Enable it: menagerie webhooks update {webhook_id} --enabled
""",
    )


def password_reset(*, to: str, token: str, until: datetime, base_url: str) -> Letter:
    """Opening the link does nothing yet, as mail programs open links by themselves."""
    return Letter(
        to=to,
        subject="Choose a new password",
        text=f"""\
Somebody asked for a new password for your account with this email address, on the database
service at
{base_url}

If that was you, choose one here:

    {base_url.rstrip("/")}/account/reset?token={token}

or on the command line (type your new password, of at least 12 characters, after the second
command):

    export MENAGERIE_BASE_URL={base_url}
    menagerie password-resets complete --reset-token {token} --password -

It works once, until {_moment(until)}, and signs you out everywhere. If you have an authenticator
app, signing in still asks for its code. API keys stay valid.

If it was not you, ignore this message: nothing happens, and your password stays as it is.
""",
    )


def password_changed(*, to: str, at: datetime, ip: str, base_url: str) -> Letter:
    """For whoever did not do it."""
    return Letter(
        to=to,
        subject="Your password was changed",
        text=f"""\
The password of your account with this email address, on the database service at
{base_url}
was changed at {_moment(at)}, from the address {ip}. Other sessions were signed out.

If that was you, there is nothing to do.

If it was not you, somebody may be in your account. Choose a new password at once:

    export MENAGERIE_BASE_URL={base_url}
    menagerie password-resets create --email {to}

then sign in, and revoke the API keys that you do not know.
""",
    )


def passkey_added(*, to: str, name: str, at: datetime, ip: str, base_url: str) -> Letter:
    """For whoever did not do it."""
    return Letter(
        to=to,
        subject="A passkey was added to your account",
        text=f"""\
A passkey named "{quotable(name)}" was added to your account with this email address, on the
database service at
{base_url}
at {_moment(at)}, from the address {ip}. It signs in without your password.

If that was you, there is nothing to do.

If it was not you, somebody is in your account. Remove the passkey, and choose a new password:

    {base_url.rstrip("/")}/account/second-factor
    {base_url.rstrip("/")}/account/reset
""",
    )


def email_change(*, to: str, token: str, until: datetime, base_url: str) -> Letter:
    """To the address that an account is to have, or has."""
    return Letter(
        to=to,
        subject="Confirm your email address",
        text=f"""\
Somebody with an account on the database service at
{base_url}
gave this email address as theirs. If that was you, confirm it while you are signed in:

    {base_url.rstrip("/")}/account/email?token={token}

or on the command line:

    menagerie me confirm-email --email-token {token}

It works once, until {_moment(until)}.

If it was not you, ignore this message: nothing happens.
""",
    )


def email_changed(*, to: str, at: datetime, ip: str, base_url: str) -> Letter:
    """To the address that an account had."""
    return Letter(
        to=to,
        subject="Your email address was changed",
        text=f"""\
Your account on the database service at
{base_url}
has another email address since {_moment(at)}. It was changed from the address {ip}, by somebody
who knows your password. Sign in with the new one from now on.

If it was not you, somebody is in your account: tell the operator of the service, and the admins of
your organizations, who can remove you from them.
""",
    )


def _moment(at: datetime) -> str:
    """In UTC, to the minute."""
    return f"{at:%Y-%m-%d %H:%M} UTC"


def quotable(name: str) -> str:
    """A name that cannot leave its quotes, and in which no mail program finds a link."""
    plain = "".join(character for character in name if character.isprintable())
    return plain.translate({ord('"'): "'", ord("<"): "(", ord(">"): ")"}).replace("://", ": ")


_ALERTS_SHOWN = 20


def alerts(*, to: str, org: str, alerts: Sequence[tuple[str, str, str]], base_url: str) -> Letter:
    """Each with its severity, title and reason, which hold words of tenants and engines."""
    org = quotable(org)
    listed = "\n".join(
        f"- {severity}: {quotable(title)}\n  ({quotable(reason)})"
        for severity, title, reason in alerts[:_ALERTS_SHOWN]
    )
    more = len(alerts) - _ALERTS_SHOWN
    also = f"\nand {more} more.\n" if more > 0 else ""
    what = "An alert" if len(alerts) == 1 else f"{len(alerts)} alerts"
    return Letter(
        to=to,
        subject=f'{what} in the organization "{org}"',
        text=f"""\
In the organization "{org}", on the database service at
{base_url}
somebody should look at this:

{listed}
{also}
See all that is open, and say that you have seen one:

    menagerie alerts list --no-include-resolved
    menagerie alerts acknowledge <id>

You get this email because you lead the organization or one of its teams. Its owners and admins
choose which alerts are sent:

    menagerie orgs update --alert-emails none
""",
    )


def approval_request(
    *,
    to: str,
    by: str,
    org: str,
    team: str,
    order: str,
    cost: str,
    reasons: list[str],
    approval_id: str,
    until: str,
    base_url: str,
) -> Letter:
    """To somebody who can decide. What the order is called is of tenants too."""
    by, org, team, order = (quotable(name) for name in (by, org, team, order))
    listed = "\n".join(f"- {quotable(reason)}" for reason in reasons)
    return Letter(
        to=to,
        subject=f'Approval needed in the organization "{org}"',
        text=f"""\
"{by}" wants to order a database instance for the team "{team}" of the organization "{org}", on the
database service at {base_url}

    {order}
    {cost} a month

By the team's policy this needs approval:
{listed}

You can decide, as can others who lead the team or the organization:

    menagerie approvals get {approval_id}
    menagerie approvals approve {approval_id}
    menagerie approvals deny {approval_id} --reason "…"

Until it is approved, nothing is created. It expires on {until}.
""",
    )


def approval_decided(
    *, to: str, org: str, order: str, approval_id: str, status: str, reason: str | None, then: str
) -> Letter:
    """To whoever asked."""
    org, order = quotable(org), quotable(order)
    said = f'\nThe reason given: "{quotable(reason)}"\n' if reason else ""
    return Letter(
        to=to,
        subject=f'Your order in the organization "{org}": {status}',
        text=f"""\
Your order in the organization "{org}" is {status}:

    {order}
{said}
{then}

    menagerie approvals get {approval_id}
""",
    )
