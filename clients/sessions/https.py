"""SQL over HTTPS, as DuckDB instances answer it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx

from clients import answers, errors, transport
from clients.credentials import Credential
from clients.sessions.session import Result, Session
from clients.transport import Authorities

ROWS_BYTES_MAX: Final = 256 << 20


class HttpsSession(Session):
    def __init__(self, credential: Credential, authorities: Authorities) -> None:
        super().__init__(credential, authorities)
        self._http = transport.open_http(
            credential.base_url, ca_file=authorities.ca_file, ca_pem=authorities.ca_pem,
            # A statement may run for as long as it needs, and a paused instance wakes first.
            timeout_s=None,
        )  # fmt: skip

    def close(self) -> None:
        self._http.close()

    def version(self) -> str:
        return f"DuckDB {self.query('SELECT version()').rows[0][0]}"

    def query(self, statement: str, params: Sequence[Any] | None = None) -> Result:
        body = {"sql": statement} | ({"params": list(params)} if params else {})
        auth = (self.credential.username, self.credential.password)
        try:
            url = f"{self.credential.base_url}/query"
            with self._http.stream("POST", url, json=body, auth=auth) as begun:
                response = answers.whole(begun, within_s=None, bytes_max=ROWS_BYTES_MAX)
        except httpx.TransportError as error:
            raise errors.InstanceUnreachable(
                f"cannot reach {self.credential.host}: {error}"
            ) from error
        if not response.is_success:
            raise errors.QueryFailed(response.status_code, _words(response))
        raw = answers.parsed(response)
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


def _words(response: httpx.Response) -> str:
    document = answers.document(response)
    return str(
        document.get("error") or document.get("detail") or f"HTTP {response.status_code}"
    ).strip()
