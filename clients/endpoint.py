"""Instances from the outside: their credentials, fetched once from the cell, and SQL over HTTPS."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from clients import errors, private_files, transport
from clients.client import Client
from clients.profiles import config_folder

HTTPS_ENGINES: Final = frozenset({"duckdb"})


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


@dataclass(frozen=True)
class Result:
    """The answer to one statement; rows hold JSON values in the order of `columns`."""

    columns: list[str]
    rows: list[list[Any]]
    row_count: int
    truncated: bool
    elapsed_ms: float
    column_types: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return asdict(self)


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


class Endpoint:
    """One instance, as its users reach it.

    Where no ca_file is set, the control plane is asked for the chain of the instance's cell, whose
    certificates need not be publicly trusted.
    """

    def __init__(
        self, client: Client, instance: Mapping[str, Any], *, org: Mapping[str, Any] | None = None
    ) -> None:
        self.client = client
        self.instance = dict(instance)
        self._arguments = {**(org or {}), "instance_id": instance["id"]}
        self._ca_pem: str | None = None

    def ca_pem(self) -> str | None:
        """Answer the chain of the instance's cell; None where the profile names a ca_file."""
        if self.client.ca_file is None and self._ca_pem is None:
            self._ca_pem = str(self._call("GET", "/ca.pem"))
        return self._ca_pem

    def reveal(self) -> Credential:
        """Fetch the credential from the cell. The URL works once; each call asks for a new one."""
        return Credential.parse(self._fetch_once("POST", "/credentials/reveal", "GET").json())

    def rotate(self) -> Credential:
        """Make a second credential; the one before stays valid until `overlap_until`."""
        return Credential.parse(self._fetch_once("POST", "/credentials/rotate", "POST").json())

    def logs(self) -> Iterator[str]:
        """Yield the engine's log as the cell streams it."""
        url = str(self._call("GET", "/logs")["url"])
        with self._http(url, timeout_s=None) as http, self._answered(http, "GET", url) as response:
            yield from response.iter_text()

    def _call(self, method: str, suffix: str) -> Any:
        operation = self.client.document.ending(method, "/instances/{instance_id}" + suffix)
        if operation is None:
            raise errors.ConfigurationError(f"{self.client.base_url} offers no instance{suffix}")
        return self.client.send(operation, self._arguments).body

    def _fetch_once(self, method: str, suffix: str, method_on_cell: str) -> httpx.Response:
        url = str(self._call(method, suffix)["url"])
        with self._http(url) as http, self._answered(http, method_on_cell, url) as response:
            response.read()
            return response

    def _http(self, url: str, timeout_s: float | None = 60.0) -> httpx.Client:
        # No token travels along: the URL is the permission.
        return transport.open_http(
            url, ca_file=self.client.ca_file, ca_pem=self.ca_pem(), timeout_s=timeout_s
        )

    def _answered(self, http: httpx.Client, method: str, url: str) -> "_Stream":
        return _Stream(http, method, url)


class _Stream:
    """One request to a cell, with failures told as everywhere else and the one-time URL unsaid."""

    def __init__(self, http: httpx.Client, method: str, url: str) -> None:
        self._http = http
        self._request = http.build_request(method, url)

    def __enter__(self) -> httpx.Response:
        try:
            self._response = self._http.send(self._request, stream=True)
            if not self._response.is_success:
                self._response.read()
        except httpx.TransportError as error:
            raise errors.ConnectionFailed(
                f"cannot reach the cell {self._request.url.host}: {error}"
            ) from error
        if not self._response.is_success:
            raise errors.problem(self._response.status_code, _document(self._response))
        return self._response

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._response.close()


class Session:
    """Statements on one instance that answers SQL over HTTPS, over one connection."""

    def __init__(self, endpoint: Endpoint, credential: Credential) -> None:
        self.credential = credential
        self._http = transport.open_http(
            credential.base_url, ca_file=endpoint.client.ca_file, ca_pem=endpoint.ca_pem(),
            # A statement may run for as long as it needs, and a paused instance wakes first.
            timeout_s=None,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def query(self, sql: str, params: Sequence[Any] | None = None) -> Result:
        """Run one statement. Raises `errors.QueryFailed` with the engine's own words."""
        body = {"sql": sql} | ({"params": list(params)} if params else {})
        auth = (self.credential.username, self.credential.password)
        try:
            response = self._http.post(f"{self.credential.base_url}/query", json=body, auth=auth)
        except httpx.TransportError as error:
            raise errors.ConnectionFailed(
                f"cannot reach {self.credential.host}: {error}"
            ) from error
        if not response.is_success:
            raise errors.QueryFailed(response.status_code, _words(response))
        raw = response.json()
        return Result(
            columns=[
                str(one["name"]) if isinstance(one, Mapping) else str(one) for one in raw["columns"]
            ],
            rows=raw["rows"],
            row_count=int(raw["row_count"]),
            truncated=bool(raw["truncated"]),
            elapsed_ms=float(raw["elapsed_ms"]),
            column_types=[str(one) for one in raw.get("column_types", ())],
        )


def _document(response: httpx.Response) -> dict[str, Any]:
    try:
        raw = response.json()
    except ValueError:
        raw = {"detail": response.text[:500]}
    return raw if isinstance(raw, dict) else {"detail": str(raw)[:500]}


def _words(response: httpx.Response) -> str:
    document = _document(response)
    return str(
        document.get("error") or document.get("detail") or f"HTTP {response.status_code}"
    ).strip()
