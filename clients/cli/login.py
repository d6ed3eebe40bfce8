"""`menagerie login`: a session by email and password or by a browser, kept in the profile."""

import sys
from getpass import getpass
from typing import Annotated, Any

import typer

from clients.cli.arguments import ProfileOption
from clients.cli.command_context import CommandContext, open_context
from clients.cli.groups import CommandApp
from clients.cli.output import plain
from clients.errors import ConfigurationError
from clients.profiles import SECRETS, Profile, Profiles, base_url_of, of_server, require_token

app = CommandApp()


@app.command(
    epilog="Example: menagerie login --email ada@example.com; menagerie login --sso --save-as work"
)
def login(
    email: Annotated[
        str | None,
        typer.Option("--email", help="Email address. Prompted for if omitted.", metavar="EMAIL"),
    ] = None,
    password_stdin: Annotated[
        bool,
        typer.Option("--password-stdin", help="Read the password from stdin instead of prompting."),
    ] = False,
    totp: Annotated[
        bool,
        typer.Option(
            "--totp", help="Prompt for a code of the authenticator app, too.", show_default=False
        ),
    ] = False,
    totp_code: Annotated[
        str | None,
        typer.Option(
            "--totp-code",
            help="A code of the authenticator app, or a recovery code; it works once.",
            metavar="CODE",
        ),
    ] = None,
    sso: Annotated[
        bool,
        typer.Option(
            "--sso",
            help="Sign in from a browser on any machine, by single sign-on or any other way.",
        ),
    ] = False,
    break_glass: Annotated[
        bool,
        typer.Option(
            "--break-glass",
            help="For owners: sign in although single sign-on is enforced. All owners are told.",
        ),
    ] = False,
    step_up: Annotated[
        bool, typer.Option("--step-up", help="Add the second factor to the current session.")
    ] = False,
    save_as: Annotated[
        str | None,
        typer.Option(
            "--save-as",
            help="Profile to save the session in. Default: the active one.",
            metavar="NAME",
        ),
    ] = None,
    profile: ProfileOption = None,
) -> None:
    """Sign in and save the session in the profile.

    You are prompted for the password, or it is read from stdin; it is never an argument. For a few
    minutes after the second factor was verified, the session can erase instances and close
    organizations. With `--sso`, you open a page in any browser, sign in there and enter the code
    that is shown here; this works over ssh as well.
    """
    if sso and (email or password_stdin or totp or totp_code or break_glass or step_up):
        raise ConfigurationError(
            "--sso signs in from a browser: leave the other ways to sign in out"
        )
    context = open_context(profile)
    code = totp_code or (_ask("TOTP code") if totp or step_up or break_glass else None)
    with context.client:
        if step_up:
            session = _send(context, "/sessions/current/actions/step-up", {"code": code})
            typer.echo(
                plain(f"second factor verified until {session.get('mfa_expires_at')}"), err=True
            )
            return
        name = _profile_for(context.profile, save_as)
        if sso:
            from clients.cli import device_login  # noqa: PLC0415 -- slow to load

            session = device_login.session(context)
        else:
            body: dict[str, Any] = {
                "email": email or typer.prompt("Email"),
                "password": _password(from_stdin=password_stdin),
            }
            body |= {"totp_code": code} if code else {}
            body |= {"break_glass": True} if break_glass else {}
            # The session there was tells who signs in, while strangers guess at the account.
            session = _send(context, "/v1/sessions", body, with_session=True)
    save(context.profile, require_token("session_token", session["token"]), name)
    until = plain(str(session.get("expires_at")))
    typer.echo(f"signed in until {until}; session saved in profile {name}", err=True)


def _send(
    context: CommandContext, suffix: str, arguments: dict[str, Any], *, with_session: bool = False
) -> dict[str, Any]:
    operation = context.operation("POST", suffix)
    answer: dict[str, Any] = context.client.send(
        operation, arguments, with_session=with_session
    ).body
    return answer


def _password(*, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    return _ask("Password")


def _ask(what: str) -> str:
    if not sys.stdin.isatty():
        raise ConfigurationError(f"no terminal to prompt for the {what.lower()}")
    return getpass(f"{what}: ")


def _profile_for(found: Profile, save_as: str | None) -> str:
    """The profile to keep a session in; raises where that one is of another server."""
    name = save_as or found.name or "default"
    table = Profiles.read().named.get(name)
    if table is not None and not of_server(table, found.base_url):
        raise ConfigurationError(
            f"the session is for {found.base_url}, but profile {name} is for"
            f" {base_url_of(table)}; choose another profile with --save-as NAME"
        )
    return name


def save(found: Profile, token: str, name: str) -> None:
    """Keep the session beside the server it is for; the first profile kept becomes active."""
    kept = Profiles.read()
    if name not in kept.named:
        # A key that stands in a variable or in the local server's own file stays there.
        given = found.settings()
        kept.named[name] = {key: given[key] for key in given if key not in SECRETS}
    kept.named[name] |= {"session_token": token}
    kept.active = kept.active or name
    kept.write()
