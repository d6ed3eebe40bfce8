"""Holds promise 42 for the cell: whatever control sends, the answer is a documented one."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
import yaml
from hypothesis import HealthCheck, settings
from requests.auth import AuthBase
from schemathesis.specs.openapi.checks import (
    ignored_auth,
    missing_required_header,
    negative_data_rejection,
    positive_data_acceptance,
)

from cell.main import DOCUMENT
from contract_tests.cell.rig import Rig

CHUNK_BYTES = 65_536
schema = schemathesis.openapi.from_dict(yaml.safe_load(DOCUMENT.read_text()))
_SETTINGS = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
# Whether there is such an instance, and whether it may be paused now, no schema says. A request is
# signed anew whenever it is sent, so checks that take the signature away find it there again.
_EXCLUDED = [
    *(positive_data_acceptance, ignored_auth),
    *(missing_required_header, negative_data_rejection),
]


class Signed(AuthBase):
    """Signs what is about to be sent, as the control plane does."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        body = request.body or b""
        content = body.encode() if isinstance(body, str) else body
        assert isinstance(content, bytes)
        assert request.method is not None
        request.headers.update(self.rig.sign(request.method, request.path_url, content))
        return request


@pytest.fixture(scope="module")
def base_url(shared_rig: Rig) -> Iterator[str]:
    """The cell's socket on a port, which is what schemathesis can speak to."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_unix_connection(shared_rig.socket)
        await asyncio.gather(pump(reader, other_writer), pump(other_reader, writer))

    async def serve() -> asyncio.Server:
        return await asyncio.start_server(joined, "127.0.0.1", 0)

    server = asyncio.run_coroutine_threadsafe(serve(), loop).result(20)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)


@schema.exclude(operation_id="instances.put").parametrize()
@settings(_SETTINGS, max_examples=5)
def test_every_answer_is_one_the_document_names(case: Any, base_url: str, shared_rig: Rig) -> None:
    case.call_and_validate(
        base_url=base_url, auth=Signed(shared_rig), excluded_checks=_EXCLUDED, timeout=60
    )


@pytest.mark.nightly
@schema.parametrize()
@settings(_SETTINGS, max_examples=200)
def test_every_answer_is_one_the_document_names_at_length(
    case: Any, base_url: str, shared_rig: Rig
) -> None:
    case.call_and_validate(
        base_url=base_url, auth=Signed(shared_rig), excluded_checks=_EXCLUDED, timeout=60
    )
