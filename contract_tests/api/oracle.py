"""An independent oracle: openapi-core re-checks every request and response the tests exchange."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from openapi_core.templating.paths.exceptions import PathError
from openapi_core.testing import MockRequest, MockResponse

from contract_tests.api.compiled import validators
from menagerie import contract
from specserver import Document

DOCUMENT = Path(__file__).resolve().parents[2] / "openapi.yaml"
_REFUSALS = range(400, 500)
_JSON = ("application/json", "application/problem+json")


def _octets(content: bytes) -> str:
    """As a text, a character for each."""
    return content.decode("latin-1")


_READ = {
    "application/openmetrics-text": bytes.decode,
    "application/pdf": _octets,
    "application/problem+json": json.loads,
    "application/samlmetadata+xml": bytes.decode,
    "application/x-pem-file": bytes.decode,
    "text/csv": bytes.decode,
    "text/event-stream": bytes.decode,
}


@cache
def document() -> Document:
    """Loaded once for all tests of a process; `make check` holds it to OpenAPI."""
    return Document.load(DOCUMENT, checked=True)


@cache
def scim_document() -> Document:
    return Document.load(contract.scim_place(), checked=True)


class OracleError(AssertionError):
    """The service and the document disagree, by the judgement of someone else's code."""


class Oracle:
    """Made once. It counts the exchanges (`checked`) and those openapi-core looks at (`judged`).

    By day (`each` is False) a refusal is judged once of those that an operation gives in thousands
    of tests, and which differ in their texts alone.
    """

    def __init__(self, *, each: bool = True) -> None:
        self._requests, self._responses = validators(document().raw, _READ)
        self._operations = Operations()
        self._each = each
        self._alike: set[Any] = set()
        self.checked = 0
        self.judged = 0

    def check(self, request: httpx.Request, response: httpx.Response) -> None:
        """Raises OracleError: for a request taken that is invalid, or an answer that is."""
        if request.method in {"HEAD", "OPTIONS"}:
            return
        operation = self._operations.find(request)
        if operation is None or _is_nowhere(response):
            # Not an operation: the document has nothing to say, beyond the form of errors.
            return
        alike = None if self._each else _alike(operation, response)
        if alike is not None and alike in self._alike:
            self.checked += 1
            return
        asked = _request(request)
        what = f"{request.method} {request.url.path}: {response.status_code}"
        # One that is refused may be wrong in any way.
        faults = [] if response.status_code in _REFUSALS else self._faults(asked)
        if faults:
            raise OracleError(f"{what}, and the request is invalid: {_words(faults)}")
        wrong = list(self._responses.iter_errors(asked, _response(response)))
        if any(isinstance(fault, PathError) for fault in wrong):
            # Of a slash that is encoded, openapi-core makes another path.
            return
        self.checked += 1
        self.judged += 1
        if wrong:
            raise OracleError(f"{what}: {_words(wrong)}: {response.text[:2000]}")
        if unexplained := _unexplained(operation, response):
            raise OracleError(f"{what}: its description does not name the code {unexplained}")
        secrets = list(_undocumented(operation, response))
        if secrets:
            raise OracleError(f"{what} shows what the document does not know: {secrets}")
        if alike is not None:
            self._alike.add(alike)

    def _faults(self, asked: Any) -> list[Exception]:
        try:
            return list(self._requests.iter_errors(asked))
        except RecursionError as too_deep:
            return [too_deep]


class OracleTransport(httpx.AsyncBaseTransport):
    """Shows every exchange to the oracle before the test sees the answer."""

    def __init__(self, inner: httpx.AsyncBaseTransport, oracle: Oracle) -> None:
        self._inner = inner
        self._oracle = oracle

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        await response.aread()
        self._oracle.check(request, response)
        return response


class Operations:
    """What the document says of each, by the path and method of a request."""

    def __init__(self) -> None:
        self._operations = [
            (path.split("/"), method, found) for path, method, found in document().operations()
        ]

    def find(self, request: httpx.Request) -> dict[str, Any] | None:
        """None where there is none with that path and method."""
        parts = request.url.raw_path.partition(b"?")[0].decode().split("/")
        fitting = [
            (sum(one.startswith("{") for one in path), operation)
            for path, method, operation in self._operations
            if method == request.method and _fits(path, parts)
        ]
        return min(fitting, key=lambda one: one[0])[1] if fitting else None


def _undocumented(operation: dict[str, Any], response: httpx.Response) -> Iterator[str]:
    """Members that the document does not know.

    Response schemas are open, so that members may be added; no validator would complain.
    """
    media_type = response.headers.get("content-type", "")
    if media_type not in _JSON:
        return
    content = operation["responses"][str(response.status_code)]["content"]
    yield from _unknown([content[media_type]["schema"]], response.json(), "")


def _unexplained(operation: dict[str, Any], response: httpx.Response) -> str | None:
    """The code of a refusal, unless the document says when this operation answers so."""
    if response.status_code not in _REFUSALS:
        return None
    described = operation["responses"][str(response.status_code)]
    example = described["content"]["application/problem+json"]["example"]
    code: str = response.json()["code"]
    return None if code == example["code"] or f"`{code}`" in described["description"] else code


def _alike(operation: dict[str, Any], response: httpx.Response) -> Any:
    """What is the same of refusals that differ in their texts alone; None for any other answer."""
    if response.status_code not in _REFUSALS or "json" not in response.headers["content-type"]:
        return None
    told = response.json()
    headers = frozenset((name, value.isdigit()) for name, value in response.headers.items())
    return id(operation), response.status_code, told.get("code"), headers, _shape(told)


def _shape(value: Any) -> Any:
    """The types of a value and of all it has, by their names."""
    if isinstance(value, dict):
        return frozenset((name, _shape(member)) for name, member in value.items())
    if isinstance(value, list):
        return frozenset(_shape(item) for item in value)
    return type(value)


def _fits(template: list[str], parts: list[str]) -> bool:
    return len(template) == len(parts) and all(
        one.startswith("{") or one == part for one, part in zip(template, parts, strict=True)
    )


def _unknown(schemas: list[dict[str, Any]], value: Any, place: str) -> Iterator[str]:
    flat = [one for schema in schemas for one in _flat(schema)]
    if isinstance(value, list):
        items = [schema["items"] for schema in flat if "items" in schema]
        for item in value:
            yield from _unknown(items, item, f"{place}/-")
    if not isinstance(value, dict) or any(schema.get("additionalProperties") for schema in flat):
        return
    described = [schema["properties"] for schema in flat if "properties" in schema]
    for name, member in value.items():
        known = [properties[name] for properties in described if name in properties]
        if not known:
            yield f"{place}/{name}"
        yield from _unknown(known, member, f"{place}/{name}")


def _flat(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for keyword in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(keyword, ()):
            yield from _flat(part)


def _request(request: httpx.Request) -> Any:
    return MockRequest(
        "http://house",
        request.method.lower(),
        request.url.path,
        args=dict(request.url.params),
        headers=dict(request.headers),
        data=request.content or None,
        content_type=request.headers.get("content-type", ""),
    )


def _response(response: httpx.Response) -> Any:
    media_type = response.headers.get("content-type", "")
    return MockResponse(
        response.content,
        status_code=response.status_code,
        headers=dict(response.headers),
        content_type=media_type.partition(";")[0],
    )


def _is_nowhere(response: httpx.Response) -> bool:
    """The oracle lets a path parameter span segments, which no server of ours does."""
    return response.status_code == 404 and response.json()["code"] == "no_such_path"


def _words(faults: list[Any]) -> str:
    said = [
        getattr(error, "message", str(error))
        for fault in faults
        for error in (getattr(fault.__cause__, "schema_errors", None) or [fault])
    ]
    return "; ".join(str(one)[:300] for one in said)
