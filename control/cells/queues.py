"""What the control plane asks about the queues of an instance, and of whom: its cell."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import quote, urlencode

Answer = dict[str, Any]
Ask = Callable[[str, str, str, Mapping[str, Any] | None, str | None], Answer]
"""With an operation of the cell's document, a method, a path, a body and the key of an act."""


class QueueRefused(Exception):  # noqa: N818 - an answer
    """The instance will not do it as things are; all of it is for the caller to read."""

    def __init__(
        self, status: int, detail: str, code: str, errors: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code
        self.errors = list(errors)


class Queues(Protocol):
    """Of one instance. All raise QueueRefused or CellUnavailable.

    What has a `key` is done once for it, whatever ends meanwhile, and answered again after that.
    A read has none: what it read and could not tell is visible again when its time has come.
    """

    def page(self, *, limit: int, after: str) -> Answer: ...
    def create(self, name: str, *, unlogged: bool, key: str) -> Answer: ...
    def delete(self, name: str) -> None: ...
    def permit(self, name: str, roles: Sequence[str]) -> Answer: ...
    def send(
        self, name: str, messages: Sequence[Mapping[str, Any]], *, delay_s: int, key: str
    ) -> Answer: ...
    def read(self, name: str, *, count: int, timeout_s: int) -> Answer: ...
    def remove(self, name: str, ids: Sequence[int], *, archive: bool, key: str) -> Answer: ...
    def purge(self, name: str, *, key: str) -> Answer: ...


class HttpQueues:
    """By the cell's own document of queues, below `base`."""

    def __init__(self, base: str, ask: Ask) -> None:
        self._base = base
        self._ask = ask

    def page(self, *, limit: int, after: str) -> Answer:
        query = urlencode({"limit": limit, "after": after}, quote_via=quote)
        return self._ask("queues.list", "GET", f"{self._base}?{query}", None, None)

    def create(self, name: str, *, unlogged: bool, key: str) -> Answer:
        return self._ask(
            "queues.create", "POST", self._base, {"name": name, "unlogged": unlogged}, key
        )

    def delete(self, name: str) -> None:
        self._ask("queues.delete", "DELETE", self._path(name), None, None)

    def permit(self, name: str, roles: Sequence[str]) -> Answer:
        body = {"data_api_roles": list(roles)}
        return self._ask("queues.permit", "PUT", self._path(name, "/permissions"), body, None)

    def send(
        self, name: str, messages: Sequence[Mapping[str, Any]], *, delay_s: int, key: str
    ) -> Answer:
        body = {"messages": list(messages), "delay_seconds": delay_s}
        return self._ask("queues.send", "POST", self._path(name, "/messages"), body, key)

    def read(self, name: str, *, count: int, timeout_s: int) -> Answer:
        body = {"count": count, "visibility_timeout_s": timeout_s}
        return self._ask("queues.read", "POST", self._path(name, "/actions/read"), body, None)

    def remove(self, name: str, ids: Sequence[int], *, archive: bool, key: str) -> Answer:
        body = {"message_ids": list(ids), "archive": archive}
        return self._ask("queues.remove", "POST", self._path(name, "/actions/remove"), body, key)

    def purge(self, name: str, *, key: str) -> Answer:
        return self._ask("queues.purge", "POST", self._path(name, "/actions/purge"), None, key)

    def _path(self, name: str, rest: str = "") -> str:
        return f"{self._base}/{quote(name, safe='')}{rest}"
