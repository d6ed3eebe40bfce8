"""Whose address a request comes from: what the gateway says before its client says anything."""

import hmac
from typing import cast

from gateway import proxy_header
from specserver.http_protocol import HttpProtocol, http_protocol
from specserver.problems import RenderProblem


class ProxyHeaderHttp(HttpProtocol):
    """HTTP of which a connection may begin with a PROXY header, believed with the token only.

    Nothing later is read as one, and no header of HTTP is looked at, so whoever came by the gateway
    cannot choose their address. Who came without it, or with another token, has none.
    """

    gateway_token: bytes

    _before: bytes | None = b""

    def data_received(self, data: bytes) -> None:
        if self._before is not None:
            data = self._before = self._before + data
            try:
                header = proxy_header.parse(data)
            except proxy_header.NotProxyError:
                pass
            else:
                if header is None:
                    return
                data = data[header.size_bytes :]
                if header.client and hmac.compare_digest(header.token, self.gateway_token):
                    self.client = header.client, 0
            self._before = None
        if data:
            super().data_received(data)


def proxy_header_http(render: RenderProblem, gateway_token: str) -> type[ProxyHeaderHttp]:
    """For uvicorn's `http=`, as `http_protocol`."""
    members = {"gateway_token": gateway_token.encode()}
    return cast(
        "type[ProxyHeaderHttp]", type("Http", (ProxyHeaderHttp, http_protocol(render)), members)
    )
