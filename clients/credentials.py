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

# They become words of shells, parts of URLs and literals of programs; the host names a file too.
HOST: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,252}")
USERNAME: Final = re.compile(r"[0-9A-Za-z_][0-9A-Za-z._-]{0,62}")
DATABASE: Final = re.compile(r"([0-9A-Za-z_][0-9A-Za-z._-]{0,62})?")
# What may stand between quotes.
TEXT: Final = re.compile(r"[ -~]*")
PORT_MAX: Final = 65_535


def _unsound(raw: Mapping[str, Any]) -> list[str]:
    """Answer the names of what may not stand in a URL, a shell, a program and a terminal."""
    patterns = {"username": USERNAME, "host": HOST, "password": TEXT, "uri": TEXT}
    patterns |= {"overlap_until": TEXT} if raw.get("overlap_until") is not None else {}
    wrong = [name for name, allowed in patterns.items() if not _fits(raw.get(name), allowed)]
    port = raw.get("port")
    wrong += [] if type(port) is int and 0 < port <= PORT_MAX else ["port"]
    return wrong or ([] if _fits(_database(raw["uri"]), DATABASE) else ["uri"])


def _fits(value: Any, allowed: re.Pattern[str]) -> bool:
    return isinstance(value, str) and allowed.fullmatch(value) is not None


def _database(uri: str) -> str | None:
    try:
        return urlsplit(uri).path.strip("/")
    except ValueError:
        return None


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
        if not isinstance(raw, Mapping):
            raise errors.MalformedAnswer("the cell's answer is not a credential")
        if wrong := _unsound(raw):
            raise errors.MalformedAnswer(
                f"the cell's answer is not a credential: {' and '.join(wrong)} missing or with"
                " characters that are not allowed there"
            )
        return cls(**{name: raw[name] for name in cls.__dataclass_fields__ if name in raw})

    @property
    def base_url(self) -> str:
        return f"https://{self.host}:{self.port}"

    @property
    def database(self) -> str:
        """The database the URI names; empty where it names none."""
        return _database(self.uri) or ""


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
