"""The TLS policy, and the certificate in force, read again when its files change."""

import ssl
import time
from pathlib import Path

import structlog

log = structlog.get_logger("gateway.certificates")

# AEAD and ephemeral key exchange only; TLS 1.3 has nothing else. Level 2 shuts out SHA-1.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:@SECLEVEL=2"
# A context holds the keys of its session tickets; a new one now and then limits what a stolen
# ticket key can open.
CONTEXT_LIFE_S = 6 * 3600.0


def make_context(chain: Path, key: Path, alpn: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = 1
    context.set_alpn_protocols(list(alpn))
    context.load_cert_chain(chain, key)
    return context


class Certificates:
    """Connections keep the context they began with, so a change cuts none of them."""

    def __init__(self, directory: Path, alpn: tuple[str, ...]) -> None:
        self._chain = directory / "wildcard.pem"
        self._key = directory / "wildcard.key"
        self._alpn = alpn
        self._stamp: tuple[int, ...] = ()
        self._failed: tuple[int, ...] = ()
        self._made_at = 0.0
        self.context: ssl.SSLContext | None = None

    def refresh(self) -> bool:
        """True where a new certificate is in force."""
        try:
            stamp = (*_stamp(self._chain), *_stamp(self._key))
        except OSError:
            return False
        if stamp == self._stamp and time.monotonic() - self._made_at < CONTEXT_LIFE_S:
            return False
        try:
            context = make_context(self._chain, self._key, self._alpn)
        except (OSError, ssl.SSLError) as error:
            # Also the moment between the writing of the two files: tried again at the next look.
            if stamp != self._failed:
                log.warning("gateway.certificate_kept", reason=str(error))
                self._failed = stamp
            return False
        self.context, self._stamp, self._made_at = context, stamp, time.monotonic()
        log.info("gateway.certificate_loaded")
        return True


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size
