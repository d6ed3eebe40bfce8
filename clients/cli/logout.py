"""`menagerie logout`: ends the session and takes it out of the profile."""

import typer

from clients.cli.arguments import ProfileOption
from clients.cli.command_context import open_context
from clients.cli.groups import App
from clients.errors import SignInRequired, Unauthenticated
from clients.profiles import Profiles

app = App()


@app.command(epilog="Example: menagerie logout")
def logout(profile: ProfileOption = None) -> None:
    """End the profile's session."""
    context = open_context(profile)
    if context.profile.session_token is None:
        raise SignInRequired("there is no session to end")
    with context.client:
        try:
            operation = context.operation("DELETE", "/sessions/{session_id}")
            context.client.send(operation, {"session_id": "current"})
            typer.echo("signed out", err=True)
        except Unauthenticated:
            typer.echo("the session had already ended", err=True)
    kept = Profiles.read()
    if context.profile.name in kept.named:
        kept.named[context.profile.name].pop("session_token", None)
        kept.write()
