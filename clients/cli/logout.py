"""`menagerie logout`: ends the session and takes it out of the profile."""

import typer

from clients.cli.arguments import ProfileOption
from clients.cli.desk import open_desk
from clients.cli.groups import PLAIN
from clients.errors import SignInRequired, Unauthenticated
from clients.profiles import Profiles

app = typer.Typer(**PLAIN)


@app.command(epilog="Example: menagerie logout")
def logout(profile: ProfileOption = None) -> None:
    """End the profile's session."""
    desk = open_desk(profile)
    if desk.profile.session_token is None:
        raise SignInRequired("there is no session to end")
    with desk.client:
        try:
            operation = desk.operation("DELETE", "/sessions/{session_id}")
            desk.client.send(operation, {"session_id": "current"})
            typer.echo("signed out", err=True)
        except Unauthenticated:
            typer.echo("the session had already ended", err=True)
    kept = Profiles.read()
    if desk.profile.name in kept.named:
        kept.named[desk.profile.name].pop("session_token", None)
        kept.write()
