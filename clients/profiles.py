"""Which server a client talks to and as whom: options, environment, profiles, the local server."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from clients import listeners, private_files
from clients.errors import ConfigurationError

DEFAULT_BASE_URL: Final = "http://127.0.0.1:8080"
# The settings a profile holds, and the variable that wins over each.
VARIABLES: Final = {
    "base_url": "MENAGERIE_BASE_URL",
    "api_key": "MENAGERIE_API_KEY",
    "session_token": "MENAGERIE_SESSION_TOKEN",
    "ca_file": "MENAGERIE_CA_FILE",
    "org_id": "MENAGERIE_ORG",
    "project_id": "MENAGERIE_PROJECT",
}
SECRETS: Final = frozenset({"api_key", "session_token"})
TOKENS: Final = {
    "api_key": re.compile(r"mk_[!-~]{1,500}"),
    "session_token": re.compile(r"ms_[!-~]{1,500}"),
}
# What JSON's strings may hold as it is, and TOML's may not.
UNQUOTED: Final = re.compile(r"[\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class Profile:
    """Everything needed to talk to one server. Its repr shows no secret."""

    name: str | None = None
    base_url: str = DEFAULT_BASE_URL
    api_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    org_id: str | None = None
    project_id: str | None = None
    origin: str = "the default"

    def settings(self) -> dict[str, str]:
        return {name: value for name in VARIABLES if (value := getattr(self, name))}


def config_folder(environ: Mapping[str, str] = os.environ) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or str(_home(environ) / ".config")
    return Path(base) / "menagerie"


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or "~").expanduser()


@dataclass
class Profiles:
    """The file of profiles: `active = "name"` and one table `[profiles.name]` each."""

    path: Path
    active: str | None = None
    named: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> "Profiles":
        path = config_folder(environ) / "config.toml"
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls(path)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(f"cannot read {path}: {error}") from error
        try:
            named = {
                name: {key: str(value) for key, value in table.items() if key in VARIABLES}
                for name, table in raw.get("profiles", {}).items()
            }
        except AttributeError as error:
            raise ConfigurationError(
                f"cannot read {path}: `profiles` has to hold a table for each profile"
            ) from error
        active = raw.get("active")
        return cls(path, None if active is None else str(active), named)

    def write(self) -> None:
        lines = [f"active = {_quoted(self.active)}", ""] if self.active else []
        for name, table in sorted(self.named.items()):
            lines.append(f"[profiles.{_quoted(name)}]")
            lines += [f"{key} = {_quoted(table[key])}" for key in VARIABLES if table.get(key)]
            lines.append("")
        private_files.write(self.path, "\n".join(lines))


def _quoted(text: str) -> str:
    """Answer the text as a basic string of TOML, which knows no halves of characters."""

    def escape(found: re.Match[str]) -> str:
        if found[0] == "\x7f":
            return "\\u007f"
        raise ConfigurationError(f"{text!r} is not text that a file can hold")

    return UNQUOTED.sub(escape, json.dumps(text, ensure_ascii=False))


def require_token(key: str, token: Any) -> str:
    """Answer the token; raise where it is none that a Menagerie server gives out."""
    if not isinstance(token, str) or TOKENS[key].fullmatch(token) is None:
        start = TOKENS[key].pattern[:3]
        raise ConfigurationError(
            f"this is not a {key.replace('_', ' ')}: it has to begin with {start} and to consist of"
            " visible ASCII characters; nothing was stored"
        )
    return token


def local_server(environ: Mapping[str, str] = os.environ) -> Profile | None:
    """Answer the local server's profile, as `menagerie serve` left it in its endpoints.json."""
    folder = environ.get("MENAGERIE_HOME") or str(_home(environ) / ".menagerie")
    path = Path(folder).expanduser() / "endpoints.json"
    raw = private_files.read_json(path)
    if not isinstance(raw, dict) or not raw.get("base_url"):
        return None
    return Profile(origin=str(path), **_known(raw))


def _known(raw: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(raw[name]) for name in VARIABLES if raw.get(name)}


def resolve(
    name: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Profile:
    """Answer the profile in force: environment, then profile, then the local server.

    A secret never travels to a server it was not given for: where another base_url is named, the
    profile's and the local server's keys and ids are left behind.
    """
    profiles = Profiles.read(environ)
    name = name or environ.get("MENAGERIE_PROFILE") or profiles.active
    local = local_server(environ)
    if name is None:
        chosen = local or Profile()
    elif name in profiles.named:
        chosen = Profile(name=name, origin=f"profile {name}", **profiles.named[name])
        if local and _same(local.base_url, chosen.base_url):
            chosen = replace(chosen, **{**local.settings(), **chosen.settings()})
    else:
        known = ", ".join(sorted(profiles.named)) or "none"
        raise ConfigurationError(f"no profile {name!r} in {profiles.path} (known: {known})")
    named = {key: environ[variable] for key, variable in VARIABLES.items() if environ.get(variable)}
    if "base_url" in named and not _same(named["base_url"], chosen.base_url):
        return Profile(origin="the environment", **named)
    if local is not None and (name is None or _has_secrets_of(local, chosen)):
        _check_listener(local)
    return replace(chosen, **named)


def _has_secrets_of(local: Profile, chosen: Profile) -> bool:
    return any(
        getattr(local, name) is not None and getattr(local, name) == getattr(chosen, name)
        for name in SECRETS
    )


def _check_listener(local: Profile) -> None:
    """The service runs as who may have written its file, or as root."""
    uids = {0, os.geteuid(), Path(local.origin).stat().st_uid}
    listeners.refuse_strangers(local.base_url, uids)


def base_url_of(table: Mapping[str, str]) -> str:
    """The server that a profile's table is of."""
    return table.get("base_url") or DEFAULT_BASE_URL


def of_server(table: Mapping[str, str], base_url: str) -> bool:
    return _same(base_url_of(table), base_url)


def _same(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")
