"""The SCIM server's operations: all are one, as the protocol itself says what each does."""

from typing import Any, Final
from urllib.parse import parse_qsl

from control.sso.scim.call import ScimCall
from control.sso.scim.errors import MEDIA_TYPE
from specserver import HandlerResolver, Operation, Reply

ROOT: Final = "/scim/v2"


class ScimResolver(HandlerResolver):
    """Every operation of `scim.yaml` is served by one function."""

    def resolve_operation_id(self, _operation: Operation) -> str:
        return f"{__name__}.{serve.__name__}"


def serve(call: ScimCall) -> Reply:
    # Loading the protocol takes half a second, and most installations have no such provider.
    from control.sso.scim import protocol  # noqa: PLC0415

    request = call.exchange.request
    answer = protocol.answer(
        call,
        base_url=f"{call.services.settings.base_url.rstrip('/')}{ROOT}",
        path=_path(call),
        query=dict(parse_qsl(request.query_string, keep_blank_values=True)),
    )
    headers: dict[str, Any] = {**answer.headers}
    headers.pop("Content-Type", None)
    return Reply(int(answer.status), answer.body, headers, MEDIA_TYPE)


def _path(call: ScimCall) -> str:
    """Below ROOT, with the id as it was sent."""
    path = call.exchange.operation.path
    for name, value in call.exchange.path.items():
        path = path.replace("{" + name + "}", value.replace("/", "%2F"))
    return path
