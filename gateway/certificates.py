"""The TLS policy, and the certificate in force, read again when its files change."""

import re
import ssl
import time
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import structlog

from gateway import client_chains

log = structlog.get_logger("gateway.certificates")

# AEAD and ephemeral key exchange only; TLS 1.3 has nothing else. Level 2 shuts out SHA-1.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:@SECLEVEL=2"
# A context holds the keys of its session tickets; a new one now and then limits what a stolen
# ticket key can open.
CONTEXT_LIFE_S = 6 * 3600.0
# Each takes some 100 KB; those made longest ago give way.
CONTEXTS_MAX = 1_000
# A name that a client gave becomes the name of a file.
HOST_NAME = re.compile(r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63}){1,126}")


def make_context(
    chain: Path, key: Path, alpn: tuple[str, ...], client_ca_pem: str | None = None
) -> ssl.SSLContext:
    """With `client_ca_pem` only clients that show a certificate of these authorities get in."""
    context = _bare_context() if client_ca_pem is None else asking_context()
    if alpn:
        context.set_alpn_protocols(list(alpn))
    context.load_cert_chain(chain, key)
    if client_ca_pem is not None:
        context.load_verify_locations(cadata=client_chains.usable(client_ca_pem))
        client_chains.look_first(context)
    return context


def asking_context() -> ssl.SSLContext:
    """One that requires certificates, and as yet has none itself and believes no authority.

    No session is resumed: OpenSSL would not look again whether the client's certificates, and the
    authorities above them, are still good.
    """
    context = _bare_context()
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | client_chains.NO_COMPRESSED_CERTIFICATES
    context.verify_mode = ssl.CERT_REQUIRED
    # An intermediate authority may stand in the bundle without its root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _bare_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = 1
    return context


@dataclass(frozen=True, slots=True)
class _Pair:
    chain: Path
    key: Path

    def stamp(self) -> tuple[int, ...] | None:
        try:
            return (*_stamp(self.chain), *_stamp(self.key))
        except OSError:
            return None


@dataclass(slots=True)
class _Made:
    stamp: tuple[int, ...] | None
    made_at: float
    context: ssl.SSLContext | None


_Key = tuple[_Pair, tuple[str, ...], str | None]


class Certificates:
    """Connections keep the context they began with, so a change cuts none of them.

    A context has the certificate of its host, or else the wildcard; the names of protocols it
    agrees on; and the authorities clients are asked for. A session begun in one of them can be
    resumed in no other, since each has ticket keys of its own.
    """

    def __init__(self, directory: Path) -> None:
        self._wildcard = _Pair(directory / "wildcard.pem", directory / "wildcard.key")
        self._domains = directory / "domains"
        self._challenges = directory / "challenges"
        self._with_own: frozenset[str] = frozenset()
        self._made: OrderedDict[_Key, _Made] = OrderedDict()

    def context(
        self, alpn: tuple[str, ...], host: str = "", client_ca_pem: str | None = None
    ) -> ssl.SSLContext | None:
        """None where there is no usable certificate, or the authorities do not parse."""
        pair = self._wildcard
        if host in self._with_own:
            pair = _Pair(self._domains / f"{host}.crt", self._domains / f"{host}.key")
        key = (pair, alpn, client_ca_pem)
        kept = self._made.get(key)
        return kept.context if kept is not None else self._make(key, None)

    def challenge(self, host: str, alpn: str) -> ssl.SSLContext | None:
        """What answers a certificate authority's challenge; None where none is under way.

        Looked up each time: it is there for seconds, and must be served as soon as it is.
        """
        if not HOST_NAME.fullmatch(host):
            return None
        both = self._challenges / f"{host}.pem"
        try:
            return make_context(both, both, (alpn,)) if both.exists() else None
        except (OSError, ValueError) as error:  # ssl.SSLError among them
            log.warning("gateway.challenge_broken", file=both.name, reason=str(error))
            return None

    def refresh(self, asked_for: Collection[str]) -> None:
        """Looks at the files again; to be called now and then.

        `asked_for` are the authorities of all routes: what was made for others is of no more use.
        """
        try:
            found = frozenset(
                each.stem for each in self._domains.iterdir() if each.suffix == ".crt"
            )
        except OSError:
            found = frozenset()
        self._with_own = found
        stamps: dict[_Pair, tuple[int, ...] | None] = {}
        for key, kept in list(self._made.items()):
            pair, _, authorities = key
            if pair not in stamps:
                stamps[pair] = pair.stamp()
            gone = pair != self._wildcard and pair.chain.stem not in found
            if gone or (authorities is not None and authorities not in asked_for):
                del self._made[key]
                continue
            old = time.monotonic() - kept.made_at >= CONTEXT_LIFE_S
            if stamps[pair] is not None and (old or stamps[pair] != kept.stamp):
                self._make(key, kept)

    def _make(self, key: _Key, kept: _Made | None) -> ssl.SSLContext | None:
        pair, alpn, client_ca_pem = key
        stamp = pair.stamp()
        context = None
        try:
            if stamp is not None:
                context = make_context(pair.chain, pair.key, alpn, client_ca_pem)
                log.info("gateway.certificate_loaded", file=pair.chain.name)
        except (OSError, TypeError, ValueError) as error:  # of authorities that are no PEM, too
            # Also the moment between the writing of the two files: tried again once one changes.
            log.warning("gateway.certificate_kept", file=pair.chain.name, reason=str(error))
            context = kept.context if kept else None
        self._made[key] = _Made(stamp, time.monotonic(), context)
        while len(self._made) > CONTEXTS_MAX:
            self._made.popitem(last=False)
        return context


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size
