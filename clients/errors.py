"""What can go wrong between a client and the service, as exceptions that carry the facts."""

from collections.abc import Mapping
from typing import Any, ClassVar


class ClientError(Exception):
    """Anything a client raises on purpose."""


class ConfigurationError(ClientError):
    """The client lacks something it was not told: an address, a token, an id."""


class SignInRequired(ConfigurationError):  # noqa: N818  the state is the name, as in the problem
    """The operation needs a token the client does not hold."""


class AmbiguousName(ConfigurationError):  # noqa: N818  the state is the name
    """A name stands for several resources; their ids are in the message."""


class UnknownName(ClientError):  # noqa: N818  the state is the name
    """Nothing the caller can see has this name."""


class ConnectionFailed(ClientError):  # noqa: N818  the state is the name
    """The service could not be reached, or went away before it answered."""


class MalformedAnswer(ClientError):  # noqa: N818  the state is the name
    """The service answered with something that no such service answers."""


class InstanceUnreachable(ConnectionFailed):
    """An instance could not be reached, or went away before it answered."""


class WaitTimedOut(ClientError):  # noqa: N818  the state is the name
    """A resource did not reach the status in time; `last` is how it was seen last."""

    def __init__(self, message: str, last: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.last = last


class ResourceFailed(ClientError):  # noqa: N818  the state is the name
    """A resource went to `failed` while it was waited for; `last` says why."""

    def __init__(self, message: str, last: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.last = last


class ApprovalAwaited(ClientError):  # noqa: N818  the state is the name
    """What was to be created waits for somebody's approval; `last` is the request that waits."""

    def __init__(self, message: str, last: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.last = last


class QueryFailed(ClientError):  # noqa: N818  the state is the name
    """An instance refused a query: `status` as HTTP has it, the engine's words as the message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Problem(ClientError):  # noqa: N818  RFC 9457's own word
    """The service answered with a problem document (RFC 9457)."""

    statuses: ClassVar[tuple[int, ...]] = ()

    def __init__(
        self, status: int, document: Mapping[str, Any], retry_after_s: float | None = None
    ) -> None:
        self.status = status
        self.document = dict(document)
        self.retry_after_s = retry_after_s
        super().__init__(self.detail or self.title)

    @property
    def title(self) -> str:
        return str(self.document.get("title") or f"HTTP {self.status}")

    @property
    def detail(self) -> str:
        return str(self.document.get("detail") or "")

    @property
    def code(self) -> str | None:
        code = self.document.get("code")
        return None if code is None else str(code)

    @property
    def request_id(self) -> str | None:
        request_id = self.document.get("request_id")
        return None if request_id is None else str(request_id)

    @property
    def violations(self) -> list[dict[str, Any]]:
        """Each `{pointer | parameter, keyword, message}` of a refused request."""
        errors = self.document.get("errors")
        return [dict(one) for one in errors or () if isinstance(one, Mapping)]


class Unauthenticated(Problem):
    statuses = (401,)


class Forbidden(Problem):
    statuses = (403,)


class NotFound(Problem):
    statuses = (404, 410)


class Conflict(Problem):
    statuses = (409, 412)


class Invalid(Problem):
    statuses = (400, 405, 406, 413, 414, 415, 422, 431)


class TooManyRequests(Problem):
    statuses = (429,)


class ServiceFailed(Problem):
    statuses = (500, 501, 502, 503, 504)


def problem(
    status: int, document: Mapping[str, Any], retry_after_s: float | None = None
) -> Problem:
    """Answer the exception for a status that is not a success."""
    for kind in (
        Unauthenticated,
        Forbidden,
        NotFound,
        Conflict,
        Invalid,
        TooManyRequests,
        ServiceFailed,
    ):
        if status in kind.statuses:
            return kind(status, document, retry_after_s)
    return Problem(status, document, retry_after_s)
