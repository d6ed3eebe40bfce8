"""Credentials of instances, as a cell answers them, and the file they are kept in."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from clients import errors, private_files
from clients.profiles import config_folder

# It becomes a file's name and an argument of programs.
HOST: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,252}")
PORT_MAX: Final = 65_535


def _is_sound(raw: Mapping[str, Any]) -> bool:
    """Whether all is there, and nothing but what may stand in a URL, a shell and a terminal."""
    texts = [raw.get(name) for name in ("username", "password", "host", "uri")]
    texts += [raw["overlap_until"]] if raw.get("overlap_until") is not None else []
    if not all(isinstance(one, str) and one.isascii() and one.isprintable() for one in texts):
        return False
    port = raw.get("port")
    is_port = type(port) is int and 0 < port <= PORT_MAX
    return is_port and HOST.fullmatch(str(raw["host"])) is not None


@dataclass(frozen=True)
class Credential:
    """What a cell answers to a one-time URL. The repr shows no password."""

    username: str
    password: str = field(repr=False)
    host: str
    port: int
    uri: str = field(repr=False)
    overlap_until: str | None = None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        if not isinstance(raw, Mapping) or not _is_sound(raw):
            raise errors.MalformedAnswer("the cell's answer is not a credential")
        return cls(**{name: raw[name] for name in cls.__dataclass_fields__ if name in raw})

    @property
    def base_url(self) -> str:
        return f"https://{self.host}:{self.port}"

    @property
    def database(self) -> str:
        """The database the URI names; empty where it names none."""
        return urlsplit(self.uri).path.strip("/")


class CredentialFile:
    """Credentials kept for later commands, in one file that only its owner may read."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or config_folder() / "credentials.json"

    def get(self, base_url: str, instance_id: str) -> Credential | None:
        kept = (private_files.read_json(self.path) or {}).get(_key(base_url, instance_id))
        return Credential.parse(kept) if isinstance(kept, dict) else None

    def keep(self, base_url: str, instance_id: str, credential: Credential) -> None:
        self._change(_key(base_url, instance_id), asdict(credential))

    def forget(self, base_url: str, instance_id: str) -> None:
        self._change(_key(base_url, instance_id), None)

    def _change(self, key: str, value: dict[str, Any] | None) -> None:
        with private_files.locked(self.path):
            kept = private_files.read_json(self.path) or {}
            kept.pop(key, None)
            if value is not None:
                kept[key] = value
            private_files.write(self.path, json.dumps(kept, indent=1))


def _key(base_url: str, instance_id: str) -> str:
    return f"{base_url.rstrip('/')}#{instance_id}"
