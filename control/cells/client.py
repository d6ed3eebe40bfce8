"""The client of cells: signed requests over a unix socket or HTTPS, and what their answers mean."""

import re
import ssl
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

import httpx
import orjson
from sqlalchemy.orm import Session

from control.cells import acts, refusals
from control.cells.answer_checks import Answer, Observations, fault, observations
from control.cells.asking import asked_of_cell
from control.cells.backup_acts import BackupActs, HttpBackupActs
from control.cells.migrations import CellMigrations, HttpMigrations
from control.cells.queues import HttpQueues, QueueRefused, Queues
from control.cells.signing import Signer
from control.cells.slow_cells import OneAtATime
from control.cells.sockets import UNIX
from control.work.errors import Again, GiveUp, LeaseLost
from gateway import bounded_answers
from gateway.peer_texts import all_printable
from specserver import tracing
from storage.catalogue.cells import Cell
from storage.instances.instances import Instance

OBSERVE_TIMEOUT_S: Final = 10.0
ACT_TIMEOUT_S: Final = 4.0
"""A cell says after `ACT_WAIT_S` what is still under way, and answers the next try at once."""
ACT_WAIT_S: Final = 1
"""An engine that takes longer to start or stop is asked for again, when the cell says.

No thread waits meanwhile: a few slow engines would keep all others' orders waiting.
"""
CONNECT_TIMEOUT_S: Final = 3.0
_UNREADABLE: Final = "the cell's answer cannot be read"
DESCRIPTION_BYTES_MAX: Final = 1 << 18
"""Each order reads what all cells last said of themselves."""
_CHALLENGE: Final = re.compile(r"[0-9a-f-]{1,100}")
_RETRY_CODES: Final = frozenset({"busy"})
_RETRY_STATUSES: Final = frozenset({401, 403, 408, 425, 429})
"""A signature that is refused is its operators' to mend, within the deadline."""
_QUEUES_REFUSE: Final = frozenset({404, 409, 413, 422})
"""What is the caller's to hear as the cell says it."""


class CellUnavailable(Exception):  # noqa: N818 - a state of the cell
    """The cell did not answer, or could not now; the same call may work later."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class CellFailed(CellUnavailable):
    """The cell tried, and could not; so it may be the next time too."""


class CellRefused(GiveUp):
    """The cell understood and will never do it; `reason` says why."""


class InstanceUnknown(CellRefused):
    """The cell has no such instance."""


class CellClient(BackupActs, Protocol):
    """What the control plane asks of a cell.

    Acts carry the operation's step as `key`, which the cell answers once and repeats from then
    on, and the `lease`, of which it refuses any older than it has seen (LeaseLost). They raise
    Again while that goes on.
    All raise CellUnavailable or CellRefused.
    """

    def describe(self) -> Answer: ...
    def observations(self) -> Observations: ...
    def observe(self, instance_id: str) -> Answer | None: ...
    def capacity(self, instance_id: str) -> Answer: ...
    def put(self, instance_id: str, spec: Mapping[str, Any], *, key: str, lease: int) -> Answer: ...
    def pause(self, instance_id: str, *, key: str, lease: int) -> Answer: ...
    def resume(self, instance_id: str, *, key: str, lease: int) -> Answer: ...
    def resize(
        self, instance_id: str, size: Mapping[str, Any], *, key: str, lease: int
    ) -> Answer: ...
    def set_network(
        self, instance_id: str, network: Mapping[str, Any], *, key: str, lease: int
    ) -> Answer: ...
    def snapshot(self, instance_id: str, label: str, *, key: str, lease: int) -> Answer: ...
    def delete(self, instance_id: str, *, key: str, lease: int) -> Answer: ...
    def erase(self, instance_id: str, *, key: str, lease: int) -> Answer: ...
    def end_access(
        self, instance_id: str, holders: list[str], urls: Mapping[str, float]
    ) -> None: ...
    def collect_egress(
        self, instance_ids: Collection[str], taken: Collection[str]
    ) -> list[Answer]: ...
    def sent_in(self, hour: datetime) -> list[Answer]: ...
    def queues(self, instance_id: str) -> Queues: ...
    def migrations(self, instance_id: str) -> CellMigrations: ...


class Cells(Protocol):
    """Where the clients come from."""

    def for_instance(self, db: Session, instance: Instance) -> CellClient: ...
    def for_cell(self, cell: Cell) -> CellClient: ...


class HttpCell(HttpBackupActs):
    """One cell by its URL: `http+unix:///path/to.sock`, or `https://…` trusted by `ca_pem`.

    What is signed for it names it, so that it cannot pass that on to another.
    """

    def __init__(
        self, cell_id: str, url: str, signer: Signer, *, ca_pem: str | None = None
    ) -> None:
        self._cell_id = cell_id
        self._signer = signer
        self._acts = OneAtATime()
        if url.startswith(UNIX):
            # No TLS on a unix socket, so no authorities to load.
            transport = httpx.HTTPTransport(uds=unquote(url.removeprefix(UNIX)), verify=False)
            url = "http://cell"
        else:
            transport = httpx.HTTPTransport(verify=_trusting(ca_pem))
        self._http = bounded_answers.client(transport, base_url=url)

    def describe(self) -> Answer:
        told = self._ask("cells.get", "/v1/cell")
        if len(orjson.dumps(told)) > DESCRIPTION_BYTES_MAX:
            raise CellUnavailable(f"{_UNREADABLE}: its description of itself is too long")
        _trusting(told["ca"]["root_pem"])
        return told

    def observations(self) -> Observations:
        items = self._send("GET", "/v1/instances", b"", {}, OBSERVE_TIMEOUT_S).get("items")
        found = observations(items, self._cell_id) if isinstance(items, list) else None
        if found is None:
            raise CellUnavailable(_UNREADABLE)
        return found

    def observe(self, instance_id: str) -> Answer | None:
        about = {"instance_id": instance_id}
        return self._ask_if_there("instances.get", _path(instance_id), about)

    def capacity(self, instance_id: str) -> Answer:
        path = f"{_path(instance_id)}/capacity"
        return _about({"instance_id": instance_id}, self._ask("instances.capacity", path))

    def put(self, instance_id: str, spec: Mapping[str, Any], *, key: str, lease: int) -> Answer:
        return self._act("put", instance_id, spec, key, lease)

    def pause(self, instance_id: str, *, key: str, lease: int) -> Answer:
        return self._act("pause", instance_id, None, key, lease)

    def resume(self, instance_id: str, *, key: str, lease: int) -> Answer:
        return self._act("resume", instance_id, None, key, lease)

    def resize(self, instance_id: str, size: Mapping[str, Any], *, key: str, lease: int) -> Answer:
        return self._act("resize", instance_id, {"size": dict(size)}, key, lease)

    def set_network(
        self, instance_id: str, network: Mapping[str, Any], *, key: str, lease: int
    ) -> Answer:
        return self._act("set-network", instance_id, network, key, lease)

    def snapshot(self, instance_id: str, label: str, *, key: str, lease: int) -> Answer:
        return self._act("snapshot", instance_id, {"label": label}, key, lease)

    def delete(self, instance_id: str, *, key: str, lease: int) -> Answer:
        return self._act("delete", instance_id, None, key, lease)

    def erase(self, instance_id: str, *, key: str, lease: int) -> Answer:
        return self._act("erase", instance_id, None, key, lease)

    def end_access(self, instance_id: str, holders: list[str], urls: Mapping[str, float]) -> None:
        """`urls`: by their `jti`, when each expires, in unix seconds."""
        path = f"{_path(instance_id)}/actions/end-access"
        unused = [{"jti": jti, "expires_at": at} for jti, at in urls.items()]
        body = orjson.dumps({"holders": holders, "urls": unused})
        self._send("POST", path, body, {"Content-Type": "application/json"}, OBSERVE_TIMEOUT_S)

    def collect_egress(self, instance_ids: Collection[str], taken: Collection[str]) -> list[Answer]:
        """What there is of these instances; reports that were `taken` are removed there."""
        body = orjson.dumps({"instance_ids": list(instance_ids), "taken": list(taken)})
        head = {"Content-Type": "application/json"}
        said = self._send("POST", "/v1/egress/actions/collect", body, head, OBSERVE_TIMEOUT_S)
        items: list[Answer] = _described("egress.collect", said)["items"]
        return items

    def sent_in(self, hour: datetime) -> list[Answer]:
        """What was sent out in the hour that begins then, of each instance with any."""
        path = f"/v1/egress/sent?hour={hour.strftime('%Y-%m-%dT%H:00:00.000Z')}"
        said = self._send("GET", path, b"", {}, OBSERVE_TIMEOUT_S)
        items: list[Answer] = _described("egress.sent", said)["items"]
        return items

    def queues(self, instance_id: str) -> Queues:
        return HttpQueues(f"{_path(instance_id)}/queues", self._ask_queues)

    def migrations(self, instance_id: str) -> CellMigrations:
        return HttpMigrations(_path(instance_id), self._ask_if_there, self._do)

    def close(self) -> None:
        self._http.close()

    def _ask_queues(
        self,
        operation: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        key: str | None,
    ) -> Answer:
        headers = {} if key is None else {"Operation-Key": key}
        content = b""
        if body is not None:
            content = orjson.dumps(body)
            headers["Content-Type"] = "application/json"
        answer = self._exchange(method, path, content, headers, OBSERVE_TIMEOUT_S)
        if answer.status_code in _QUEUES_REFUSE:
            said = _said(answer)
            raise QueueRefused(
                answer.status_code,
                refusals.detail(answer, said),
                refusals.code(said),
                refusals.errors(said),
            )
        # What messages hold is their owners', to the letter, and is kept nowhere here.
        return _described(operation, _read(answer) if answer.is_success else _meaning(answer))

    def _ask(self, operation: str, path: str) -> Answer:
        return _described(operation, self._send("GET", path, b"", {}, OBSERVE_TIMEOUT_S))

    def _ask_if_there(self, operation: str, path: str, about: Mapping[str, str]) -> Answer | None:
        try:
            return _about(about, self._ask(operation, path))
        except InstanceUnknown:
            return None

    def _act(
        self, action: str, instance_id: str, body: Mapping[str, Any] | None, key: str, lease: int
    ) -> Answer:
        at = acts.target(action, _path(instance_id))
        about = {"instance_id": instance_id}
        return self._do(acts.operation(action), at, body, about, key=key, lease=lease)

    def _do(
        self,
        operation: str,
        at: tuple[str, str],
        body: Mapping[str, Any] | None,
        about: Mapping[str, str],
        *,
        key: str,
        lease: int,
    ) -> Answer:
        headers = {
            "Operation-Key": key,
            "Operation-Lease": str(lease),
            "Prefer": f"wait={ACT_WAIT_S}",
        }
        content = b""
        if body is not None:
            content = orjson.dumps(body)
            headers["Content-Type"] = "application/json"
        with self._acts.act():
            said = self._send(*at, content, headers, ACT_TIMEOUT_S)
        return _about(about, _described(operation, said))

    def _send(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> Answer:
        return _meaning(self._exchange(method, path, body, headers, timeout_s))

    def _exchange(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> httpx.Response:
        """A cell whose clock is off asks for a signature over a challenge, and learns from it."""
        answer = self._exchange_once(method, path, body, headers, timeout_s)
        challenge = answer.headers.get("Menagerie-Challenge", "")
        if answer.status_code == httpx.codes.UNAUTHORIZED and _CHALLENGE.fullmatch(challenge):
            return self._exchange_once(method, path, body, headers, timeout_s, challenge)
        return answer

    def _exchange_once(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        timeout_s: float,
        challenge: str = "",
    ) -> httpx.Response:
        signed = self._signer.sign_request(self._cell_id, method, path, body, challenge=challenge)
        try:
            with asked_of_cell(method):
                return self._http.request(
                    method,
                    path,
                    content=body or None,
                    headers={**headers, **signed, **tracing.headers()},
                    timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
                )
        except httpx.TimeoutException as error:
            raise CellUnavailable("the cell did not answer in time") from error
        except bounded_answers.AnswerRefused as error:
            raise CellUnavailable(f"the cell's answer cannot be accepted: {error}") from error
        except httpx.HTTPError as error:
            raise CellUnavailable("the cell cannot be reached") from error


def _path(instance_id: str) -> str:
    return f"/v1/instances/{quote(instance_id, safe='')}"


def _trusting(ca_pem: str | None) -> ssl.SSLContext:
    """Only the CAs that the cell told, or those of the system until it has told any."""
    try:
        return ssl.create_default_context(cadata=ca_pem)
    except (ssl.SSLError, ValueError) as error:
        raise CellUnavailable("the cell's CA cannot be read") from error


def _described(operation: str, said: Answer) -> Answer:
    """The answer, which is as the document says."""
    wrong = fault(operation, said)
    if wrong is not None:
        raise CellUnavailable(f"{_UNREADABLE}: {wrong}")
    return said


def _about(wanted: Mapping[str, str], said: Answer) -> Answer:
    """Not of another instance than was asked about; of a snapshot it is not said."""
    for name, value in wanted.items():
        if said.get(name, value) != value:
            raise CellUnavailable(f"{_UNREADABLE}: it is about another {name.removesuffix('_id')}")
    return said


def _read(answer: httpx.Response) -> Answer:
    """The body as it is; of a refusal that cannot be read only the status counts."""
    try:
        body = orjson.loads(answer.content) if answer.content else {}
    except orjson.JSONDecodeError:
        body = None
    if isinstance(body, dict):
        return body
    if answer.is_success:
        raise CellUnavailable(_UNREADABLE)
    return {}


def _said(answer: httpx.Response) -> Answer:
    """The body, with each text of it made printable.

    A cell is trusted less than the control plane, which keeps, logs and shows what it says.
    """
    try:
        said: Answer = all_printable(_read(answer))
    except RecursionError as error:
        raise CellUnavailable(_UNREADABLE) from error
    return said


def _meaning(answer: httpx.Response) -> Answer:
    """The answer's body, or the exception its status stands for."""
    body = _said(answer)
    if answer.is_success:
        return body
    detail, code = refusals.detail(answer, body), refusals.code(body)
    if answer.status_code == httpx.codes.CONFLICT and code == "stale_lease":
        raise LeaseLost(detail)
    if code == "in_flight":
        raise Again(refusals.wait_s(answer))
    if answer.status_code == httpx.codes.NOT_FOUND:
        raise InstanceUnknown(detail)
    passing = answer.status_code in _RETRY_STATUSES or code in _RETRY_CODES
    if answer.is_server_error and code not in _RETRY_CODES:
        raise CellFailed(detail)
    if answer.is_server_error or passing:
        raise CellUnavailable(detail)
    raise CellRefused(detail)
