"""Holds promise 42 for the cell: whatever is sent, the answer is a documented one."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from functools import cached_property
from http import HTTPStatus
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from requests.auth import AuthBase
from schemathesis.checks import load_all_checks
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from cell.main import DOCUMENT
from contract_tests import drawn
from contract_tests.by_day import one_in
from contract_tests.cell.migrations.generated_cases import TOO_EARLY, GeneratedMigrations
from contract_tests.cell.rig import VALKEY, Rig, new_id
from specserver.http_protocol import TARGET_BYTES_MAX
from specserver.written import read

CHUNK_BYTES = 65_536
TARGET_TOO_LONG = 414
TIMEOUT_S = 60
# Of the 200 characters of an Operation-Key, what is kept behind an id.
KEY_REST_MAX = 160
# Each of these may start an engine anew, which takes half a second.
STARTING = ["instances.put", "instances.resize", "backups.make", "backups.restore"]
# An operation that changes what others find has an instance of its own, or one with its opposite.
SUBJECTS = {
    "instances.put": "shaped",
    "instances.resize": "shaped",
    "instances.set_network": "shaped",
    "instances.pause": "sleeper",
    "instances.resume": "sleeper",
    "instances.delete": "deleted",
    "instances.erase": "erased",
    "backups.restore": "restored",
    "one_time.console": "browsed",
    "one_time.download": "restored",
}
# Has a console; where any engine would do, it is one that starts at once.
BROWSED = {"engine": "duckdb", "engine_version": "1.5"}
# What a network or a certificate is, no pattern says.
NOBODY_SHUT_OUT = {"allow_cidrs": None, "client_ca_pem": None}
load_all_checks()


class Caller(AuthBase):
    """Proves who calls, over the bytes that are sent: as the gateway for it, else as control.

    Schemathesis leaves it out of the requests from which it takes the credential or makes it wrong.
    """

    rig: Rig
    signs = True
    """False for a request that is to be wrong by having no signature."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if not Caller.signs:
            return request
        body = request.body or b""
        content = body.encode() if isinstance(body, str) else body
        assert isinstance(content, bytes)
        assert request.method is not None
        if request.path_url.startswith(("/v1/wake/", "/v1/abandoned/", "/v1/doubted-logins/")):
            token = (self.rig.home / "run" / "gateway.token").read_text()
            request.headers["Authorization"] = f"Bearer {token}"
        else:
            request.headers.update(self.rig.sign(request.method, request.path_url, content))
        return request


schema = schemathesis.openapi.from_dict(read(DOCUMENT))
# By itself the check also takes 4xx and 5xx for acceptance; here there is what is asked for.
schema.config.checks.positive_data_acceptance.expected_statuses = ["2xx", "303"]
_caller = Caller()
schema.auth.set_from_requests(_caller)
_PUT = schema["/v1/instances/{instance_id}"]["PUT"]
_COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "database": None,
}
# Where engines start, a thousand would take an hour, and the requests that are wrong start none.
# The same requests on every run.
_CALM_STARTING = settings(max_examples=2, derandomize=True, **_COMMON)
_DEEP = settings(max_examples=1000, **_COMMON)
_DEEP_STARTING = settings(max_examples=200, **_COMMON)


class Estate:
    """A running cell on a port, and instances for the requests to be about."""

    def __init__(self, rig: Rig, base_url: str) -> None:
        self.rig = rig
        self.base_url = base_url
        self._made: dict[str, str] = {}
        self._migrations = GeneratedMigrations(rig)

    def subject(self, operation_id: str) -> str:
        if operation_id == "backups.take_over":
            # Of what has its data here there is nothing to take over.
            return new_id()
        role = SUBJECTS.get(operation_id, "looked at")
        if role not in self._made:
            self._made[role] = self.rig.make(**(BROWSED if role == "browsed" else {}))
        return self._made[role]

    def ask(self, case: Any) -> None:
        self.aim(case)
        self.validate(case)

    def aim(self, case: Any) -> None:
        """Puts what exists where the document can only say what it looks like."""
        if case.meta.is_negative_at(ParameterLocation.PATH):
            return
        operation_id = case.operation.definition.raw["operationId"]
        if operation_id.startswith("migrations."):
            self._migrations.aim(case, operation_id)
            self.begin_operation(case)
        else:
            self._aim_at_subject(case, operation_id)

    def _aim_at_subject(self, case: Any, operation_id: str) -> None:
        subject = self.subject(operation_id)
        if "token" in case.path_parameters:
            action = operation_id.removeprefix("one_time.")
            claims: dict[str, Any] = {"backup_id": self.backup_id} if action == "download" else {}
            case.path_parameters["token"] = self.rig.token(subject, action, **claims)
            if str(case.query.get("follow")).lower() == "true":
                # That answer would never end; test_one_time.py reads one.
                case.query["follow"] = "false"
        elif "instance_id" in case.path_parameters:
            case.path_parameters["instance_id"] = subject
        self.begin_operation(case)
        if operation_id in STARTING and case.meta.generation.mode.is_positive:
            # It may sleep, as a request before this one said after how little it is to.
            self.rig.wake(subject)
        if case.meta.is_negative_at(ParameterLocation.BODY):
            return
        if operation_id == "instances.put":
            _right_put(case.body)
        elif operation_id == "instances.set_network":
            case.body.update(NOBODY_SHUT_OUT)
        elif operation_id == "backups.restore" and case.meta.generation.mode.is_positive:
            case.body["backup_id"] = self.backup_id
        elif operation_id == "backups.set_copying":
            # The cell has no second store; test_copies.py asks one that has.
            case.body["wanted"] = False

    @cached_property
    def backup_id(self) -> str:
        subject = self.subject("backups.restore")
        body = {"backup_id": f"bkp_{subject.removeprefix('inst_')}", "kind": "manual"}
        return str(self.rig.action(subject, "back-up", body)["backup_id"])

    @staticmethod
    def begin_operation(case: Any) -> None:
        """An operation of its own, as nobody knows which leases others were seen with."""
        key = case.headers.get("Operation-Key")
        if key is not None and not case.meta.is_negative_at(ParameterLocation.HEADER):
            rest = key[-KEY_REST_MAX:]
            case.headers["Operation-Key"] = f"{new_id()}{rest if ':' in rest else f':{rest}'}"

    def validate(self, case: Any) -> None:
        kept: dict[str, Any] = {"base_url": self.base_url, "timeout": TIMEOUT_S}
        wrong = case.meta.is_negative_at(ParameterLocation.HEADER)
        Caller.signs = not (wrong and "Menagerie-Signature" not in case.headers)
        try:
            response = case.call(**kept)
        finally:
            Caller.signs = True
        if len(response.request.path_url) > TARGET_BYTES_MAX:
            # Such a request never gets as far as an operation.
            assert response.status_code == TARGET_TOO_LONG
            return
        # No check is left out, for any operation; but for one that is right and always too early,
        # and for a body that is too large, which Schemathesis does not count as refused.
        is_early = case.operation.definition.raw["operationId"] == TOO_EARLY
        left_out = [positive_data_acceptance] if is_early else []
        if response.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            left_out = [negative_data_rejection]
        case.validate_response(response, transport_kwargs=kept, excluded_checks=left_out)


def _right_put(body: Any, host: str | None = None) -> None:
    """What the cell can run, and what nobody else has, no schema says."""
    body.update(**VALKEY, source_snapshot=None, source_backup=None)
    body.update(NOBODY_SHUT_OUT)
    if host is not None:
        body.update(host=host)


@pytest.fixture(scope="module")
def estate(light_rig: Rig) -> Iterator[Estate]:
    """The cell's socket on a port, which is what schemathesis can speak to."""
    with _loop() as loop:
        server = asyncio.run_coroutine_threadsafe(_serve(light_rig.socket), loop).result(20)
        _caller.rig = light_rig
        yield Estate(light_rig, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        loop.call_soon_threadsafe(server.close)


@contextlib.contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop on a thread of its own; closed, or its end is a warning in somebody else's test."""
    runner = asyncio.Runner()
    loop = runner.get_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        # Connections that are still open end here.
        runner.close()


async def _serve(socket: str) -> asyncio.Server:
    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_unix_connection(socket)
        await asyncio.gather(pump(reader, other_writer), pump(other_reader, writer))

    return await asyncio.start_server(joined, "127.0.0.1", 0)


# By day each sixth operation: what is right is asked of each in the file of its wing.
@pytest.mark.parametrize(
    "operation",
    one_in(6, drawn.operations(schema.exclude(operation_id=STARTING))),
    ids=drawn.name_of,
)
def test_every_answer_is_one_the_document_names(operation: Any, estate: Estate) -> None:
    drawn.ask_a_few(operation, estate.ask)


@pytest.mark.nightly
@schema.include(operation_id=STARTING).parametrize()
@_CALM_STARTING
def test_every_answer_of_what_starts_engines(case: Any, estate: Estate) -> None:
    estate.ask(case)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@schema.exclude(operation_id=STARTING).parametrize()
@_DEEP
def test_every_answer_is_one_the_document_names_at_length(case: Any, estate: Estate) -> None:
    estate.ask(case)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@schema.include(operation_id=STARTING).parametrize()
@_DEEP_STARTING
def test_every_answer_of_what_starts_engines_at_length(case: Any, estate: Estate) -> None:
    estate.ask(case)


@given(case=_PUT.as_strategy())
@settings(max_examples=2, derandomize=True, phases=[Phase.generate], **_COMMON)
def test_what_a_right_put_asks_for_is_made(case: Any, estate: Estate) -> None:
    _make_and_erase(case, estate)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@given(case=_PUT.as_strategy())
@settings(max_examples=200, phases=[Phase.generate], **_COMMON)
def test_what_a_right_put_asks_for_is_made_at_length(case: Any, estate: Estate) -> None:
    _make_and_erase(case, estate)


def _make_and_erase(case: Any, estate: Estate) -> None:
    instance_id = new_id()
    case.path_parameters["instance_id"] = instance_id
    estate.begin_operation(case)
    _right_put(case.body, host=f"{instance_id.removeprefix('inst_')}.localhost")
    try:
        estate.validate(case)
    finally:
        estate.rig.action(instance_id, "erase")
