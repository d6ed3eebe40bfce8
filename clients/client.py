"""The Python client: any operation of the OpenAPI document, called by its id.

with Client("http://127.0.0.1:8080", api_key="mk_live_…", org_id="org_…") as client:
    made = client.call("instances.create", project_id="proj_…", engine="duckdb", size="f0")
    client.wait(made["id"], "running")
    for instance in client.paginate("instances.list"):
        print(instance["name"], instance["status"])
"""

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from clients import answers, errors, transport
from clients.closing import Closing
from clients.document import IDEMPOTENCY_KEY, SAFE_METHODS, Document, Field, Operation
from clients.names import ID, identify
from clients.profiles import Profile
from clients.retries import Retries, retry_after_s
from clients.transport import transport_for_localhost
from clients.waiting import OnChange, watch

__all__ = ["Answer", "Client", "transport_for_localhost"]

PAGES_MAX: Final = 10_000
FROM_PROFILE = ("org_id", "project_id")


@dataclass(frozen=True)
class Answer:
    """What came back: `body` is parsed JSON, text for other media types, None for no content."""

    status: int
    headers: Mapping[str, str]
    body: Any


class Client(Closing):
    """A synchronous client of one control plane. Not for several threads at once.

    With both tokens, the API key is used wherever the document accepts it and the session where
    only a user may act, or where the org is another than the key's.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        session_token: str | None = None,
        org_id: str | None = None,
        project_id: str | None = None,
        ca_file: str | None = None,
        document: Document | None = None,
        timeout_s: float = 30.0,
        retries: Retries | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.org_id = org_id
        self.project_id = project_id
        self.ca_file = ca_file
        self.timeout_s = timeout_s
        self.retries = retries or Retries()
        self._api_key = api_key
        self._session_token = session_token
        self._document = document
        self._http = transport.open_http(self.base_url, ca_file=ca_file, timeout_s=timeout_s)

    @classmethod
    def from_profile(cls, profile: Profile, **options: Any) -> Self:
        return cls(
            profile.base_url,
            api_key=profile.api_key,
            session_token=profile.session_token,
            org_id=profile.org_id,
            project_id=profile.project_id,
            ca_file=profile.ca_file,
            **options,
        )

    def close(self) -> None:
        self._http.close()

    @property
    def document(self) -> Document:
        """The server's document, fetched when first needed."""
        if self._document is None:
            self._document = Document(self.fetch_document(None)[1] or {})
        return self._document

    def fetch_document(self, etag: str | None) -> tuple[str | None, Mapping[str, Any] | None]:
        """Answer (etag, document); document is None where the given etag still holds."""
        headers = {"Accept": "application/json"} | ({"If-None-Match": etag} if etag else {})
        response = self._send("GET", "/openapi.json", headers, repeatable=False)
        if response.status_code == httpx.codes.NOT_MODIFIED:
            return etag, None
        self._raise_for(response)
        document = answers.parsed(response)
        if not isinstance(document, Mapping):
            raise errors.MalformedAnswer(f"{self.base_url} has no OpenAPI document")
        return response.headers.get("ETag"), document

    def operation(self, operation_id: str) -> Operation:
        try:
            return self.document.operations[operation_id]
        except KeyError:
            raise errors.ConfigurationError(
                f"{self.base_url} has no operation {operation_id!r}"
            ) from None

    def call(
        self,
        operation_id: str,
        /,
        *,
        idempotency_key: str | None = None,
        body: Any = None,
        **arguments: Any,
    ) -> Any:
        """Call the operation and answer its body.

        Arguments are its path, query, header and top-level body fields by name; `body` gives the
        whole body, and single fields win over it. org_id and project_id come from the client
        where they are not given. Raises `errors.Problem` for any answer that is not a success.
        """
        operation = self.operation(operation_id)
        return self.send(operation, arguments, body=body, idempotency_key=idempotency_key).body

    def send(
        self,
        operation: Operation,
        arguments: Mapping[str, Any],
        *,
        body: Any = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        with_session: bool = False,
    ) -> Answer:
        """Send the operation's request, again where that is safe, and answer what came back.

        `with_session` sends the session's token, if there is one, to an operation that needs none.
        """
        parts, path, headers = self._addressed(operation, arguments, with_session=with_session)
        if operation.is_replayable:
            headers.setdefault(IDEMPOTENCY_KEY, idempotency_key or secrets.token_hex(16))
        content = self._content(operation, parts["body"], body)
        if timeout_s is None and "timeout_s" in parts["query"]:
            # The server holds a long poll this long on purpose.
            timeout_s = float(parts["query"]["timeout_s"]) + 15.0
        if content is not None:
            headers["Content-Type"] = str(operation.body_type)
        response = self._send(
            operation.method,
            path,
            headers,
            params=parts["query"],
            content=content,
            timeout_s=timeout_s,
            repeatable=operation.method in SAFE_METHODS or operation.is_replayable,
        )
        self._raise_for(response)
        return Answer(response.status_code, response.headers, _parsed(response))

    def paginate(
        self, operation_id: str, /, *, limit: int | None = None, **arguments: Any
    ) -> Iterator[Any]:
        """Yield the items of every page, or the first `limit` of them.

        Raises `errors.MalformedAnswer` where pages lead back to one that was there before.
        """
        operation = self.operation(operation_id)
        page_max = next(
            (one.schema.get("maximum") for one in operation.at("query") if one.name == "limit"),
            None,
        )
        seen, cursor = 0, arguments.pop("cursor", None)
        been: set[Any] = set()
        while limit is None or seen < limit:
            wanted = page_max if limit is None else min(limit - seen, page_max or limit)
            page = self.send(operation, arguments | _given(limit=wanted, cursor=cursor)).body
            items, cursor = _page(page)
            yield from items if limit is None else items[: limit - seen]
            seen += len(items)
            if cursor is None:
                return
            if cursor in been or len(been) >= PAGES_MAX:
                raise errors.MalformedAnswer(f"the pages of {operation_id} have no end")
            been.add(cursor)

    def wait(
        self,
        resource_id: str,
        status: str,
        *,
        operation_id: str = "instances.get",
        timeout_s: float = 300.0,
        on_change: OnChange | None = None,
        **arguments: Any,
    ) -> dict[str, Any]:
        """Wait until the resource has the status, and answer it.

        Raises `errors.WaitTimedOut` after `timeout_s`, and `errors.ResourceFailed` as soon as the
        status cannot be reached any more.
        """
        operation = self.operation(operation_id)
        subject = operation.at("path")[-1].name
        arguments = {**arguments, subject: resource_id}
        return watch(self, operation, arguments, status, timeout_s=timeout_s, on_change=on_change)

    def identify(
        self, operation: Operation, field: Field, value: str, arguments: Mapping[str, Any]
    ) -> str:
        """Answer the id for what may be an id or a name."""
        return identify(self, operation, field, value, arguments)

    def _sort(
        self, operation: Operation, arguments: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        parts: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}, "body": {}}
        left = {
            name: value
            for name, value in arguments.items()
            if value is not None or name in _nullable(operation)
        }
        for field in operation.fields:
            if field.argument in left:
                value = left.pop(field.argument)
                parts[field.place][field.name] = (
                    _on_the_wire(value) if field.place != "body" else value
                )
            elif field.place == "path":
                own = getattr(self, field.name) if field.name in FROM_PROFILE else None
                if own is None:
                    raise errors.ConfigurationError(
                        f"{operation.id} needs {field.name}, which was not given"
                    )
                parts["path"][field.name] = own
        if left:
            raise errors.ConfigurationError(
                f"{operation.id} does not take {', '.join(sorted(left))}"
            )
        return parts

    def _content(self, operation: Operation, fields: Mapping[str, Any], body: Any) -> bytes | None:
        if operation.body_type is None:
            if body is not None:
                raise errors.ConfigurationError(f"{operation.id} takes no body")
            return None
        if isinstance(body, (bytes, str)):
            return body.encode() if isinstance(body, str) else body
        if fields and body is not None and not isinstance(body, Mapping):
            raise errors.ConfigurationError(
                "single fields cannot be set in a body that is not an object"
            )
        if body is None and not fields and not operation.body_required:
            return None
        return json.dumps({**(body or {}), **fields} if fields or body is None else body).encode()

    def _token(self, operation: Operation, org_id: str | None) -> str | None:
        if operation.is_public:
            return None
        # An org known by its slug cannot be told from another one by its id.
        home = self.org_id if self.org_id and ID.match(self.org_id) else None
        elsewhere = home is not None and org_id not in {None, home}
        if operation.needs_session:
            if self._session_token is None:
                raise errors.SignInRequired(
                    f"{operation.id} is for a signed-in user, but there is no session"
                )
            return self._session_token
        if self._session_token and (elsewhere or not self._api_key):
            return self._session_token
        if self._api_key is None:
            raise errors.SignInRequired(
                f"{operation.id} needs an API key or a session, but neither was given"
            )
        return self._api_key

    def open(self, operation: Operation, arguments: Mapping[str, Any]) -> httpx.Response:
        """Send it and answer what begins to come back, for whoever reads and closes it."""
        parts, path, headers = self._addressed(operation, arguments)
        request = self._http.build_request(
            operation.method, self.base_url + path, headers=headers, params=parts["query"]
        )
        try:
            response = self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise _unreachable(self.base_url, error) from error
        if not response.is_success:
            self._raise_for(answers.whole(response))
        return response

    def _addressed(
        self, operation: Operation, arguments: Mapping[str, Any], *, with_session: bool = False
    ) -> tuple[dict[str, dict[str, Any]], str, dict[str, str]]:
        """Answer the arguments by their places, the path, and the headers with the token."""
        parts = self._sort(operation, arguments)
        headers = {"Accept": "application/json, */*;q=0.5"} | parts["header"]
        org_id = parts["path"].get("org_id")
        token = self._session_token if with_session else self._token(operation, org_id)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        path = operation.path
        for name, value in parts["path"].items():
            path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        return parts, path, headers

    def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        repeatable: bool,
        timeout_s: float | None = None,
        **more: Any,
    ) -> httpx.Response:
        timeout = httpx.Timeout(timeout_s or self.timeout_s, connect=10.0)
        attempt = 0
        while True:
            attempt += 1
            try:
                request = self._http.build_request(
                    method, self.base_url + path, headers=dict(headers), timeout=timeout, **more
                )
                response = answers.whole(self._http.send(request, stream=True))
            except httpx.TransportError as error:
                sent = not isinstance(
                    error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
                )
                delay_s = self.retries.after_break(attempt, sent=sent, repeatable=repeatable)
                if delay_s is None:
                    raise _unreachable(self.base_url, error) from error
                self.retries.pause(delay_s, f"no answer ({type(error).__name__})")
                continue
            delay_s = self.retries.after_answer(
                attempt,
                response.status_code,
                retry_after_s(response.headers),
                repeatable=repeatable,
            )
            if delay_s is None:
                return response
            self.retries.pause(delay_s, self.retries.reason(response.status_code))

    @staticmethod
    def _raise_for(response: httpx.Response) -> None:
        if response.is_success:
            return
        document = answers.document(response)
        if response.is_redirect:
            # Whoever it names would be sent the token.
            place = str(response.headers.get("Location", "nowhere"))[:200]
            document = {"detail": f"the server redirects to {place}, which is not followed"}
        document = {"request_id": response.headers.get("X-Request-Id"), **document}
        raise errors.problem(response.status_code, document, retry_after_s(response.headers))


def _parsed(response: httpx.Response) -> Any:
    if not response.content:
        return None
    media = response.headers.get("Content-Type", "").partition(";")[0].strip()
    if media == "application/json" or media.endswith("+json"):
        return answers.parsed(response)
    return response.text


def _page(body: Any) -> tuple[list[Any], str | None]:
    """Answer the items of a page, and where the next one begins."""
    items = body.get("items") if isinstance(body, Mapping) else None
    cursor = body.get("next_cursor") if isinstance(body, Mapping) else None
    if not isinstance(items, list) or not isinstance(cursor, str | None):
        raise errors.MalformedAnswer("the server's answer is not a page of a list")
    return items, cursor


def _unreachable(base_url: str, error: httpx.TransportError) -> errors.ConnectionFailed:
    reason = str(error) or type(error).__name__
    return errors.ConnectionFailed(f"cannot reach {base_url}: {reason}")


def _nullable(operation: Operation) -> set[str]:
    return {field.argument for field in operation.at("body")}


def _on_the_wire(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return [_on_the_wire(one) for one in value]
    return str(value)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
