"""The letters of single sign-on, as plain text."""

from datetime import datetime

from control.mail.letters import Letter, moment, quotable


def domain_lapsed(*, to: str, org: str, domain: str, base_url: str) -> Letter:
    """To owners: the record was missing for so long that the domain is no longer theirs."""
    return Letter(
        to=to,
        subject=f"Single sign-on for {domain} has ended: its TXT record is missing",
        text=f"""\
The TXT record that verifies {domain} for the organization "{quotable(org)}" has been missing
for 7 days. The domain is no longer verified on the database service at
{base_url}

People with an address of the domain can sign in with a password again, and are not led to your
identity provider any more. Members stay members.

If the domain is yours, create the record again, verify it, and turn enforcement on again:

    menagerie sso-domains list
    menagerie sso-domains verify <id>
    menagerie sso-domains update <id> --is-enforced
""",
    )


def break_glass(
    *, to: str, by: str, org: str, domain: str, at: datetime, ip: str, base_url: str
) -> Letter:
    """To owners: one of them signed in without the identity provider."""
    return Letter(
        to=to,
        subject=f'An owner of "{quotable(org)}" signed in without single sign-on',
        text=f"""\
{by}, an owner of the organization "{quotable(org)}", signed in at {moment(at)} from {ip}
without single sign-on, which is enforced for {domain}, on the database service at
{base_url}

This is the way in for owners while the identity provider does not work. If none of you did it,
somebody knows the password and the second factor of that account:

1. See what was done: menagerie audit list
2. Sign in, and end the sessions of that account by removing it: menagerie members remove <id>
""",
    )
