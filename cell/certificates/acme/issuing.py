"""One certificate, from its order to the files the gateway reads."""

import asyncio
import datetime as dt
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cell.certificates.acme import chains, challenge
from cell.certificates.acme.ledger import AcmeOrder
from cell.certificates.acme.problems import AcmeError
from cell.runtime.own_threads import in_daemon_thread

if TYPE_CHECKING:
    from cell.certificates.acme.server import AcmeServer, OrderStatus

# An order that takes longer is gone on with later; others have their turn meanwhile.
ATTEMPT_S = 60.0
POLL_S = 0.5
POLL_MAX_S = 5.0


def new_key() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


async def fulfil(server: "AcmeServer", home: Path, host: str, order: AcmeOrder) -> bytes:
    """The certificate with its chain; raises AcmeError, also where the server takes its time."""
    give_up_at = time.monotonic() + ATTEMPT_S
    wait_s = POLL_S
    try:
        while True:
            seen = await in_daemon_thread(server.look, order.url)
            if seen.status == "valid" and seen.certificate is not None:
                chain_pem = await in_daemon_thread(server.download, seen.certificate)
                now = dt.datetime.now(dt.UTC)
                return await in_daemon_thread(chains.checked, chain_pem, order.key_pem, host, now)
            await _go_on(server, home, host, order, seen)
            wait_s = min(POLL_MAX_S, wait_s * 1.5)
            pause_s = max(wait_s, seen.retry_after_s or 0.0)
            if time.monotonic() + pause_s > give_up_at:
                text = f"the ACME server has not finished the order yet ({seen.status})"
                raise AcmeError("refused", text, seen.retry_after_s)
            await asyncio.sleep(pause_s)
    finally:
        challenge.withdraw(home, host)


async def _go_on(
    server: "AcmeServer", home: Path, host: str, order: AcmeOrder, seen: "OrderStatus"
) -> None:
    """What an order in this state waits for."""
    if seen.status == "ready":
        await in_daemon_thread(server.finalize, seen.finalize, _request(order, host))
    for proof in seen.proofs:
        # Also where it was asked for before: the server looks again, and may take several looks.
        challenge.publish(home, host, proof.key_authorization)
        if not proof.asked:
            await in_daemon_thread(server.answer, proof.url)


def _request(order: AcmeOrder, host: str) -> bytes:
    """The certificate signing request. The name is an alternative one: a common name is short."""
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = builder.add_extension(names, critical=False).sign(
        key_of(order.key_pem), hashes.SHA256()
    )
    return signed.public_bytes(serialization.Encoding.PEM)


def key_of(pem: str) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the keys made here are on a curve")
    return key
