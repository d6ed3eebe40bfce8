"""What a client may show as certificates, looked at before OpenSSL verifies them.

Whoever owns the authorities of an instance can make a chain of them cost half a second of a CPU,
and Python cannot set OpenSSL's depth, nor the kinds of keys. So the client's message is read when
it arrives; where it is too costly, OpenSSL goes on without authorities, and verifies no signature.
"""

import functools
import ssl
from typing import Final

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding

log = structlog.get_logger("gateway.client_chains")

SHOWN_MAX: Final = 10
RSA_MAX_BITS: Final = 8_192
CURVES: Final = frozenset({"secp256r1", "secp384r1", "secp521r1"})
KEYS_ALLOWED: Final = "RSA of up to 8192 bits, P-256, P-384, P-521, Ed25519 and Ed448"
# Types of handshake messages. The second is compressed: it is not asked for, and not looked into.
_CERTIFICATE: Final = 11
_COMPRESSED_CERTIFICATE: Final = 25
# SSL_OP_NO_RX_CERTIFICATE_COMPRESSION, which Python has no name for; unknown before OpenSSL 3.2.
NO_COMPRESSED_CERTIFICATES: Final = 1 << 33


class _Deciding(ssl.SSLContext):
    """Has no authorities, and looks at no further message."""

    refuses = ""


@functools.cache
def _deciding(refuses: str) -> _Deciding:
    context = _Deciding(ssl.PROTOCOL_TLS_SERVER)
    context.refuses = refuses
    return context


def look_first(context: ssl.SSLContext) -> None:
    """From now on at what clients show, in this context's handshakes."""
    # Python's own name for it is private, but it has been there since 3.8, and a test would tell.
    context._msg_callback = _look  # type: ignore[attr-defined]  # noqa: SLF001


def look_no_more(session: ssl.SSLObject) -> None:
    """After the handshake: to be called for each record would cost more than the record."""
    session.context = _deciding("")


def refusal(session: ssl.SSLObject) -> str:
    """Why the certificates were refused unverified; empty where they were not."""
    return session.context.refuses if isinstance(session.context, _Deciding) else ""


def usable(bundle: str) -> str:
    """The authorities of a bundle that have a key of a kind that is allowed."""
    kept = []
    for each in x509.load_pem_x509_certificates(bundle.encode()):
        fault = key_fault(each)
        if fault:
            serial = format(each.serial_number, "x")
            log.warning("gateway.authority_ignored", serial=serial, reason=fault)
        else:
            kept.append(each.public_bytes(Encoding.PEM).decode())
    return "".join(kept)


def key_fault(certificate: x509.Certificate) -> str | None:
    """What is wrong with the kind of its key."""
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return "has a key of an unknown kind"
    if isinstance(key, RSAPublicKey):
        too_long = key.key_size > RSA_MAX_BITS
        return f"has an RSA key of {key.key_size} bits" if too_long else None
    if isinstance(key, EllipticCurvePublicKey):
        return None if key.curve.name in CURVES else f"has a key on the curve {key.curve.name}"
    is_edwards = isinstance(key, Ed25519PublicKey | Ed448PublicKey)
    return None if is_edwards else "has a key of another kind"


def _look(  # as Python calls it
    session: ssl.SSLObject,
    direction: str,
    version: int,
    content_type: int,  # noqa: ARG001
    message_type: int | None,
    data: bytes,
) -> None:
    if direction != "read" or message_type not in {_CERTIFICATE, _COMPRESSED_CERTIFICATE}:
        return
    try:
        fault = _fault(message_type, data, version)
    except Exception:  # noqa: BLE001 - what cannot be looked at is not verified either
        fault = "certificates that cannot be read"
    if fault:
        session.context = _deciding(fault)


def _fault(message_type: int, message: bytes, version: int) -> str | None:
    if message_type == _COMPRESSED_CERTIFICATE:
        return "compressed certificates"
    shown = _certificates(message, has_extensions=version >= ssl.TLSVersion.TLSv1_3)
    if len(shown) > SHOWN_MAX:
        return "too many certificates"
    if any(key_fault(x509.load_der_x509_certificate(each)) for each in shown):
        return "a key of a kind that is not allowed"
    return None


def _certificates(message: bytes, *, has_extensions: bool) -> list[bytes]:
    """Those of the message (RFC 8446, 4.4.2; before TLS 1.3 without context and extensions)."""
    at = 4  # type and length
    if has_extensions:
        at += 1 + message[at]
    at += 3
    found = []
    while at < len(message):
        end = at + 3 + int.from_bytes(message[at : at + 3], "big")
        found.append(message[at + 3 : end])
        at = end
        if has_extensions:
            at += 2 + int.from_bytes(message[at : at + 2], "big")
    return found
