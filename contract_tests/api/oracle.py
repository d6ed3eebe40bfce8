"""An independent oracle: openapi-core re-checks every request and response the tests exchange."""

import json
from pathlib import Path
from typing import Any

import httpx
import yaml
from jsonschema_path import SchemaPath
from openapi_core import V31RequestValidator, V31ResponseValidator
from openapi_core.templating.paths.exceptions import PathError
from openapi_core.testing import MockRequest, MockResponse

DOCUMENT = Path(__file__).resolve().parents[2] / "openapi.yaml"
_REFUSALS = range(400, 500)


class OracleError(AssertionError):
    """The service and the document disagree, by the judgement of someone else's code."""


class Oracle:
    """Compiled once. `checked` counts the exchanges, so that a silent oracle is noticed."""

    def __init__(self) -> None:
        spec = SchemaPath.from_dict(yaml.safe_load(DOCUMENT.read_text()))
        self._requests = V31RequestValidator(spec)
        self._responses = V31ResponseValidator(
            spec,
            extra_media_type_deserializers={
                "application/problem+json": json.loads,
                "application/x-pem-file": bytes.decode,
            },
            # A response with a member that the document does not know gives something away.
            forbid_unspecified_additional_properties=True,
        )
        self.checked = 0

    def check(self, request: httpx.Request, response: httpx.Response) -> None:
        """Raises OracleError: for a request taken that is invalid, or an answer that is."""
        if request.method in {"HEAD", "OPTIONS"}:
            return
        asked = _request(request)
        try:
            faults: list[Exception] = list(self._requests.iter_errors(asked))
        except RecursionError as too_deep:
            faults = [too_deep]
        if any(isinstance(fault, PathError) for fault in faults) or _is_nowhere(response):
            # Not an operation: the document has nothing to say, beyond the form of errors.
            return
        self.checked += 1
        what = f"{request.method} {request.url.path}: {response.status_code}"
        if faults and response.status_code not in _REFUSALS:
            raise OracleError(f"{what}, and the request is invalid: {_words(faults)}")
        if response.status_code == 405:
            return
        wrong = list(self._responses.iter_errors(asked, _response(response)))
        if wrong:
            raise OracleError(f"{what}: {_words(wrong)}: {response.text[:2000]}")


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


def _request(request: httpx.Request) -> Any:
    content = request.content
    return MockRequest(
        "http://house",
        request.method.lower(),
        request.url.path,
        args=dict(request.url.params),
        headers=dict(request.headers),
        data=content or None,
        content_type=request.headers.get("content-type", ""),
    )


def _response(response: httpx.Response) -> Any:
    media_type = response.headers.get("content-type", "")
    return MockResponse(
        response.content or None,
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
