"""Credentials of instances, as a cell answers them, and the file they are kept in."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from clients import errors, private_files
from clients.profiles import config_folder


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
        known = {name: raw[name] for name in cls.__dataclass_fields__ if name in raw}
        try:
            return cls(**known)
        except TypeError as error:
            raise errors.ConnectionFailed("the cell's answer is not a credential") from error

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
