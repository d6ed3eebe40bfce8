"""Owns the way of a request: who asks, whether they may, and what is wrong with it."""

from pathlib import Path
from typing import Any, Final

from instance_services.search import allowance
from instance_services.search.allowance import Limits
from instance_services.search.batches import BatchHistory
from instance_services.search.callers import MASTER, IssuedKeys, KeyBearer, MasterKeys
from instance_services.search.clock import Clock, system_clock
from instance_services.search.errors import ApiError
from instance_services.search.rendering import CodedProblem, of_violations
from instance_services.search.snapshots import Snapshots
from instance_services.search.tasks import TaskQueue
from instance_services.search.waking import TaskListener
from specserver import Exchange, Problem, Reply

_BEARER: Final = "bearer "
_SECURE_BYTES: Final = 16


class SearchService:
    """What handlers use; one for a process."""

    def __init__(
        self,
        folder: Path,
        masters: MasterKeys,
        waker: TaskListener,
        clock: Clock = system_clock,
        limits: Limits = Limits(),  # noqa: B008 - it is frozen
    ) -> None:
        self.snapshots = Snapshots(folder, limits)
        self.folder = folder
        self._masters = masters
        self._waker = waker
        self._clock = clock
        self._storage_bytes = limits.storage_bytes
        self.requests = 0

    @property
    def keys(self) -> IssuedKeys:
        return IssuedKeys(self.snapshots.tasks, self._masters, self._clock)

    @property
    def queue(self) -> TaskQueue:
        return TaskQueue(self.snapshots.tasks, self._clock)

    @property
    def batches(self) -> BatchHistory:
        return BatchHistory(self.snapshots.tasks)

    def accept(
        self, kind: str, index_uid: str | None, details: dict[str, Any], payload: bytes = b""
    ) -> Reply:
        """A task, on disk; the indexer is told. Raises ApiError where the storage is full."""
        if self._is_full():
            allowance.refuse_growth(kind)
        summary = self.queue.accept(kind, index_uid, details, payload)
        self._waker.wake()
        return Reply(202, summary)

    def _is_full(self) -> bool:
        connections = (self.snapshots.tasks, self.snapshots.data)
        return allowance.is_full(self._storage_bytes, *connections)

    def is_development(self) -> bool:
        """As the original says it: by a master key that is too short for anything else."""
        return any(len(each.encode()) < _SECURE_BYTES for each in self._masters.all())

    def is_working(self) -> bool:
        return self._waker.is_alive()


class Boundary:
    """Whoever may not do a thing is refused before its body is read."""

    def admit(self, exchange: Exchange) -> None:
        try:
            self._admit(exchange)
        except ApiError as error:
            raise CodedProblem(error) from None

    def _admit(self, exchange: Exchange) -> None:
        service: SearchService = exchange.app_state
        action = exchange.operation.extension("action")
        if action == "none":
            return
        if not exchange.operation.extension("uncounted", False):
            service.requests += 1
        given = exchange.request.headers.get("authorization")
        if given is None:
            raise ApiError(
                "missing_authorization_header",
                "the Authorization header is missing; it is `Authorization: Bearer KEY`",
            )
        token = given[len(_BEARER) :].strip() if given[: len(_BEARER)].lower() == _BEARER else ""
        caller = service.keys.caller(token) if token else None
        if caller is None or not caller.may(action):
            raise _refused()
        index_uid = exchange.path.get("indexUid")
        if index_uid is not None and not caller.may_use(index_uid):
            raise _refused()
        exchange.principal = caller

    def __call__(self, exchange: Exchange) -> Reply:
        try:
            exchange.validate()
        except Problem as problem:
            if problem.status in {400, 422}:
                prefix = exchange.operation.extension("error-prefix", "bad_request")
                raise CodedProblem(of_violations(prefix, problem)) from None
            raise
        try:
            exchange.app_state.snapshots.begin()
            return exchange.invoke()
        except ApiError as error:
            raise CodedProblem(error) from None


def check_index(exchange: Exchange, uid: str) -> None:
    """Of an index that the body names. Raises ApiError where the caller's key is not for it."""
    caller: KeyBearer = exchange.principal
    if not caller.may_use(uid):
        raise _refused()


def check_master(exchange: Exchange) -> None:
    """Raises ApiError where the caller has another key than the master key."""
    if exchange.principal is not MASTER:
        raise _refused()


def _refused() -> ApiError:
    return ApiError("invalid_api_key", "the API key is invalid, or it may not do this")
