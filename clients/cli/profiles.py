"""`menagerie profiles`: the servers and tokens a person works with."""

import sys
from typing import Annotated, Any

import typer

from clients import profiles
from clients.cli import confirming
from clients.cli.confirming import YesOption
from clients.cli.groups import CommandApp, CommandGroup
from clients.cli.options import read_text
from clients.cli.output import OutputOption, show
from clients.errors import ConfigurationError
from clients.profiles import SECRETS, VARIABLES, Profile, Profiles, of_server, require_token
from clients.wording import listed

app = CommandApp(
    cls=CommandGroup, no_args_is_help=True, help="List, choose, change and remove profiles."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Profile, by name.")]


@app.command("list", epilog="Example: menagerie profiles list")
def list_(output: OutputOption = None) -> None:
    """List the profiles, without their secrets."""
    kept = Profiles.read()
    show([_row(name, kept) for name in sorted(kept.named)], output)


def _row(name: str, kept: Profiles) -> dict[str, Any]:
    table = kept.named[name]
    secrets = [key for key in sorted(SECRETS) if table.get(key)]
    public = {key: table.get(key) for key in VARIABLES if key not in SECRETS}
    return {"name": name, "active": name == kept.active, **public, "holds": secrets}


@app.command("show", epilog="Example: menagerie profiles show")
def show_(
    profile: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Profile, by name. Default: the active one."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Show the settings of a profile, and where they come from."""
    found = profiles.resolve(profile)
    show({"origin": found.origin, **{key: _masked(found, key) for key in VARIABLES}}, output)


def _masked(found: Profile, key: str) -> str | None:
    value: str | None = getattr(found, key)
    return f"{value[:12]}…" if value and key in SECRETS else value


@app.command("use", epilog="Example: menagerie profiles use staging")
def use(name: Name) -> None:
    """Make a profile the active one."""
    kept = Profiles.read()
    _require(name, kept)
    kept.active = name
    kept.write()


@app.command(
    "set",
    epilog="Example: menagerie profiles set staging base_url=https://db.example.com api_key=-",
)
def set_(
    name: Name,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE",
            help=f"Keys: {', '.join(VARIABLES)}. `KEY=` removes the setting; `KEY=-` reads its"
            " value from stdin, `KEY=@file` from a file.",
        ),
    ],
) -> None:
    """Create a profile, or change one.

    Other programs on this machine can see a secret that is an argument: use `-` or `@file`.
    """
    kept = Profiles.read()
    table = _changed(kept.named.get(name, {}), settings)
    if not table.get("base_url"):
        raise ConfigurationError(f"profile {name} needs a server: add base_url=URL")
    kept.named[name] = table
    kept.active = kept.active or name
    kept.write()


def _changed(former: dict[str, str], settings: list[str]) -> dict[str, str]:
    """What a profile is with the settings; tokens and ids are not for another server."""
    given: dict[str, str] = {}
    for one in settings:
        key, sign, value = one.partition("=")
        if not sign or key not in VARIABLES:
            keys = listed(list(VARIABLES), "or")
            raise typer.BadParameter(
                f"{one!r} is not a setting; write KEY=VALUE, where KEY is {keys}",
                param_hint="KEY=VALUE",
            )
        given[key] = read_text(value, key).strip()
        if key in SECRETS and given[key]:
            require_token(key, given[key])
    moved = former and given.get("base_url") and not of_server(former, given["base_url"])
    if left := sorted(former.keys() - given.keys() - {"base_url"}) if moved else []:
        sys.stderr.write(f"removed, because they were for the previous server: {', '.join(left)}\n")
    return given if moved else {**former, **given}


@app.command("remove", epilog="Example: menagerie profiles remove staging")
def remove(name: Name, yes: YesOption = False) -> None:
    """Remove a profile and the tokens in it."""
    confirming.require_answerable("profiles remove", yes=yes)
    kept = Profiles.read()
    _require(name, kept)
    confirming.ask(name, "The profile and its tokens will be removed.", yes=yes)
    del kept.named[name]
    if kept.active == name:
        kept.active = None
        sys.stderr.write(
            "no profile is active now; commands use the local server if there is one\n"
        )
    kept.write()


def _require(name: str, kept: Profiles) -> None:
    if name not in kept.named:
        raise ConfigurationError(
            f"there is no profile {name!r}; known: {', '.join(sorted(kept.named)) or 'none'}"
        )
