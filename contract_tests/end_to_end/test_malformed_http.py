"""What is no HTTP, sent to each server of ours: it is refused in that server's form of errors."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contract_tests.by_day import one_in
from contract_tests.duckdb.process import running
from contract_tests.end_to_end.installation import READY_S, Installation
from contract_tests.end_to_end.planted_modules import PlantedModules
from contract_tests.kept_port import KeptPort
from contract_tests.specserver.wire import Address, Answer, exchanged

LONG = b"x" * 70_000
REFUSED = {
    "malformed": (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, "bad_request"),
    "no method": (b"\x16\x03\x01\x02\x00", 400, "bad_request"),
    "an unknown method": (b"FOO / HTTP/1.1\r\n\r\n", 501, "not_implemented"),
    "a long query": (b"GET /?q=" + LONG + b" HTTP/1.1\r\n\r\n", 414, "uri_too_long"),
    "a long field": (
        b"GET / HTTP/1.1\r\nq: " + LONG + b"\r\n\r\n",
        *(431, "header_fields_too_large"),
    ),
}


@dataclass(frozen=True)
class Server:
    """`path` is answered 200; `plain` errors are `{"error": …}` and no problem documents."""

    address: Address
    path: str
    plain: bool = False

    def is_refusal(self, answer: Answer) -> None:
        assert 400 <= answer.status < 500 or answer.status == 501
        assert answer.fields["x-request-id"].startswith("req_")
        if self.plain:
            assert answer.fields["content-type"] == "application/json"
            assert list(answer.document) == ["error"]
            return
        assert answer.fields["content-type"] == "application/problem+json"
        assert answer.document["type"] == f"urn:menagerie:problem:{answer.document['code']}"
        assert answer.document["status"] == answer.status
        assert answer.document["title"]
        assert answer.document["detail"]
        assert answer.document["request_id"] == answer.fields["x-request-id"]


@pytest.fixture(scope="module")
def under_gunicorn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("gunicorn")
    with KeptPort() as kept, (folder / "log").open("wb") as log:
        port = kept.number
        place = {"MENAGERIE_HOME": str(folder / "home"), "MENAGERIE_PORT": str(port)}
        planted = PlantedModules(folder / "planted")
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "menagerie", "api"],
            cwd=planted.path,
            env={**os.environ, **place},
            stdout=log,
            stderr=log,
        )
        try:
            until_healthy(port, folder / "log")
            yield Server(("127.0.0.1", port), "/healthz")
            assert planted.run == "", "a module of the working folder was run"
        finally:
            process.terminate()
            process.wait(READY_S)


def until_healthy(port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=20)
        except httpx.TransportError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        else:
            return


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("duckdb")) as service:
        yield Server(str(service.socket), "/health", plain=True)


@pytest.fixture(scope="module", params=["serve", "gunicorn", "cell", "duckdb"])
def server(request: pytest.FixtureRequest) -> Server:
    given: Callable[[str], object] = request.getfixturevalue
    if request.param in {"serve", "cell"}:
        installation = given("installation")
        assert isinstance(installation, Installation)
        url = httpx.URL(installation.endpoints["base_url"])
        assert url.port
        api = Server((url.host, url.port), "/healthz")
        socket = installation.home / "cell" / "run" / "cell.sock"
        return api if request.param == "serve" else Server(str(socket.resolve()), "/v1/nothing")
    found = given("under_gunicorn" if request.param == "gunicorn" else "duckdb")
    assert isinstance(found, Server)
    return found


@pytest.mark.parametrize("name", one_in(6, REFUSED))
def test_what_is_no_request_is_refused_in_form(server: Server, name: str) -> None:
    sent, status, code = REFUSED[name]
    (answer,) = exchanged(server.address, sent)
    server.is_refusal(answer)
    assert answer.status == status
    assert answer.fields["connection"] == "close"
    if not server.plain:
        assert answer.document["code"] == code


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_before_it_is_answered_as_ever(server: Server, name: str) -> None:
    good = f"GET {server.path} HTTP/1.1\r\nhost: x\r\n\r\n".encode()
    (alone,) = exchanged(server.address, good.replace(b"host", b"connection: close\r\nhost"))
    first, last = exchanged(server.address, good + REFUSED[name][0])
    assert first.status == alone.status
    assert first.document.keys() == alone.document.keys()
    server.is_refusal(last)


PIECES = st.sampled_from(
    [
        *(b"GET ", b"POST ", b"FOO ", b"/", b"/v1/me", b"*", b" HTTP/1.1", b"\r\n", b"\r\n\r\n"),
        *(b"host: x", b"content-length: 5", b"transfer-encoding: chunked", b"5\r\nhello\r\n"),
        *(b"0\r\n\r\n", b"expect: 100-continue", b"connection: upgrade\r\nupgrade: websocket"),
    ]
)


@pytest.mark.nightly
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example([b"GET / HTTP/1.1\r\n\r\n", b"\x00"])
@example([b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n"])
@given(st.lists(st.binary(max_size=40) | PIECES, min_size=1, max_size=12))
def test_any_bytes_get_answers_in_form_and_an_end(server: Server, sent: list[bytes]) -> None:
    for answer in exchanged(server.address, b"".join(sent), end=True):
        if answer.status >= 400:
            server.is_refusal(answer)


@pytest.mark.nightly
def test_the_address_a_caller_claims_is_not_believed_under_gunicorn(
    under_gunicorn: Server,
) -> None:
    """Uvicorn believes X-Forwarded-For from 127.0.0.1 unless it is told not to."""
    assert not isinstance(under_gunicorn.address, str)
    host, port = under_gunicorn.address
    body = {"email": "a@example.org", "password": "not the one"}
    codes = [
        httpx.post(
            f"http://{host}:{port}/v1/sessions",
            json=body,
            headers={"X-Forwarded-For": f"192.0.2.{n}"},
            timeout=20,
        ).status_code
        for n in range(11)
    ]
    assert codes == [401] * 10 + [429]
