"""Where certificates are asked for, no TLS session is resumed: each time they are verified anew."""

import contextlib
import ssl
from pathlib import Path

import pytest

from contract_tests.gateway.authorities import SERVER, Authority
from contract_tests.gateway.rig import GatewayRig, raw_get
from gateway.certificates import make_context
from gateway.tls_session import TlsError, TlsSession


@pytest.mark.parametrize("tickets", [True, False])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_each_connection_shows_its_certificate(
    gateway: GatewayRig, tmp_path: Path, version: ssl.TLSVersion, tickets: bool
) -> None:
    """An authority may have expired since, and a resumed session would not tell."""
    authority = Authority("one", tmp_path)
    name = f"anew-{version.name[-1]}-{'tickets' if tickets else 'ids'}"
    host = gateway.add_instance(name, client_ca_pem=authority.pem)
    pair, context, session = authority.issue("app"), gateway.context(), None
    context.load_cert_chain(pair.certificate, pair.key)
    context.maximum_version = version
    if not tickets:
        context.options |= ssl.OP_NO_TICKET
    for _ in range(3):
        with (
            gateway.dial() as plain,
            context.wrap_socket(plain, server_hostname=host, session=session) as connection,
        ):
            assert raw_get(connection)[0] == 200
            assert not connection.session_reused
            session = connection.session
            assert session is None or not session.has_ticket


def test_what_is_resumed_nonetheless_is_refused(tmp_path: Path) -> None:
    """OpenSSL remembers a session of TLS 1.2 where the connection began in a shared context."""
    authority = Authority("one", tmp_path)
    server, pair = authority.issue("server", SERVER), authority.issue("app")
    context = make_context(server.certificate, server.key, (), authority.pem)
    asking = ssl.create_default_context(cadata=authority.pem)
    asking.maximum_version = ssl.TLSVersion.TLSv1_2
    asking.load_cert_chain(pair.certificate, pair.key)

    def connected(session: ssl.SSLSession | None) -> ssl.SSLObject:
        back, to = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = asking.wrap_bio(back, to, server_hostname="server", session=session)
        tls, done = TlsSession(context), False
        while not done:
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            tls.receive(to.read())
            done = tls.handshake()
            back.write(tls.output())
        client.do_handshake()
        tls.end()
        return client

    first = connected(None)
    with pytest.raises(TlsError, match="resumed"):
        connected(first.session)
