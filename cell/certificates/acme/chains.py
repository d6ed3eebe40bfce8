"""Whether what an ACME server sent as a certificate can take the place of the one in force."""

import datetime as dt
import os
import ssl
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from cell.certificates.acme.problems import AcmeError
from gateway.certificates import make_context
from gateway.client_chains import key_fault

BYTES_MAX: Final = 1 << 16
LINKS_MAX: Final = 10
INVALID: Final = "the ACME server sent an invalid certificate chain"


def checked(chain_pem: bytes, key_pem: str, host: str, now: dt.datetime) -> bytes:
    """What to serve, and nothing else that came with it.

    Raises AcmeError unless the gateway can serve it with this key, and a client that trusts its
    issuer will take it for the host. Takes a while; not for an event loop.
    """
    try:
        chain = _links(chain_pem)
        leaf, *issuers = chain
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        for issued, issuer in zip(chain, issuers, strict=False):
            issued.verify_directly_issued_by(issuer)
        key = serialization.load_pem_private_key(key_pem.encode(), None)
        fits = leaf.public_key() == key.public_key()
    except AcmeError:
        raise
    except Exception as error:
        raise AcmeError("order", INVALID) from error
    if not fits or host not in names.get_values_for_type(x509.DNSName):
        raise AcmeError("order", "the ACME server sent a certificate for another name or key")
    if not leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc:
        raise AcmeError("order", "the ACME server sent a certificate that is not currently valid")
    served = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain)
    _serve(served + key_pem.encode())
    return served


def _links(chain_pem: bytes) -> list[x509.Certificate]:
    """Before anything is verified: each link takes time here, and at each handshake."""
    if len(chain_pem) > BYTES_MAX:
        text = f"the ACME server sent a certificate chain of more than {BYTES_MAX >> 10} KiB"
        raise AcmeError("order", text)
    chain = x509.load_pem_x509_certificates(chain_pem)
    if len(chain) > LINKS_MAX:
        text = f"the ACME server sent a chain of more than {LINKS_MAX} certificates"
        raise AcmeError("order", text)
    if fault := next(filter(None, map(key_fault, chain)), None):
        raise AcmeError("order", f"the ACME server sent a certificate that {fault}")
    return chain


def _serve(pair_pem: bytes) -> None:
    """As the gateway will. In memory: the key is not to rest on a disk before it is in use."""
    descriptor = os.memfd_create("certificate")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(pair_pem)
        pair = Path(f"/proc/self/fd/{descriptor}")
        make_context(pair, pair, ())
    except ssl.SSLError as error:
        text = "the ACME server sent a certificate chain that the gateway cannot serve"
        raise AcmeError("order", f"{text} ({error.reason})") from error
    finally:
        os.close(descriptor)
