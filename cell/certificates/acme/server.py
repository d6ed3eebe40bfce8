"""What a cell asks of an ACME server, one call at a time; each blocks.

Only this module imports the library, and only a cell that is told of a server imports it.
"""

import email.utils
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import requests
from acme import client, messages
from acme import errors as acme_errors
from acme.challenges import (
    Challenge,
    ChallengeResponse,
    KeyAuthorizationChallenge,
    KeyAuthorizationChallengeResponse,
)
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from josepy.errors import Error as JoseError
from josepy.interfaces import JSONDeSerializable
from josepy.jwa import ES256
from josepy.jwk import JWK, JWKEC
from josepy.util import ComparableECKey
from requests.exceptions import InvalidURL, MissingSchema

from cell.certificates.acme import answers
from cell.certificates.acme.problems import AcmeError, Kind
from cell.settings import CellSettings

TIMEOUT_S = 15
USER_AGENT = "menagerie-cell"
NONCES_MAX = 4
TEXT_MAX = 400
# An order is of one name; each is asked for in its turn.
AUTHORIZATIONS_MAX = 4
SERVER_ERROR = 500
RESOURCES = ("newNonce", "newAccount", "newOrder")
# What the library raises over an answer that is not as it must be.
BROKEN = (acme_errors.Error, JoseError, AttributeError, LookupError, TypeError, ValueError)
STRANGE = "the ACME server sent an invalid response"
# What a server says of an order or account that it does not have, or has no more.
GONE = frozenset({"malformed", "unauthorized"})


@ChallengeResponse.register
class TlsAlpn01Response(KeyAuthorizationChallengeResponse):
    typ = "tls-alpn-01"


@Challenge.register
class TlsAlpn01(KeyAuthorizationChallenge):
    """RFC 8737, which the library leaves to those who own a TLS port."""

    response_cls = TlsAlpn01Response
    typ = TlsAlpn01Response.typ

    def validation(self, account_key: JWK, **_: Any) -> str:
        """What the certificate of the challenge holds a digest of."""
        return self.key_authorization(account_key)


@dataclass(frozen=True)
class ChallengeProof:
    """A challenge, and what answers it; `asked` once the server knows that it is answered."""

    url: str
    key_authorization: str
    asked: bool


@dataclass(frozen=True)
class OrderStatus:
    """An order as the server has it; `status` is a word of RFC 8555."""

    status: str
    proofs: tuple[ChallengeProof, ...]
    finalize: str
    certificate: str | None
    retry_after_s: float | None


class AcmeServer:
    """`account_url` is None until `register`. All raise AcmeError."""

    def __init__(
        self,
        settings: CellSettings,
        key: ec.EllipticCurvePrivateKey,
        account_url: str | None,
    ) -> None:
        self._settings = settings
        self._key = JWKEC(key=ComparableECKey(key))
        self._net = client.ClientNetwork(
            self._key, alg=ES256, user_agent=USER_AGENT, timeout=TIMEOUT_S
        )
        if settings.acme_ca_file:
            # Handed on to requests, which takes the path of a bundle too.
            self._net.verify_ssl = settings.acme_ca_file  # type: ignore[assignment]
        self._retry_after_s: float | None = None
        self._failing = False
        self._net.session.hooks["response"].append(self._note)
        with self._meaning(elsewhere="server"):
            answers.bind(self._net.session, settings.acme_directory)
            self._directory = client.ClientV2.get_directory(settings.acme_directory, self._net)
            self._new = {name: str(self._directory[name]) for name in RESOURCES}
        if account_url is not None:
            self._use(account_url)

    def register(self) -> str:
        """The URL of the account that belongs to the key, made where there is none."""
        terms = self._directory.meta.terms_of_service
        settings = self._settings
        if terms and not settings.acme_terms_agreed:
            raise AcmeError(
                "server",
                f"the server's terms of service ({terms}) are not accepted; set acme_terms_agreed",
            )
        wanted = messages.NewRegistration.from_data(
            email=settings.acme_contact or None,
            external_account_binding=self._binding(),
            terms_of_service_agreed=True if terms else None,
        )
        self._net.account = None
        url = _location(self._post(self._new["newAccount"], wanted))
        self._use(url)
        return url

    def _binding(self) -> dict[str, Any] | None:
        key_id, key = self._settings.acme_eab_key_id, self._settings.acme_eab_hmac_key
        if not key_id:
            return None
        public = self._key.public_key()
        try:
            return messages.ExternalAccountBinding.from_data(public, key_id, key, self._directory)
        except (JoseError, ValueError):
            # Without its cause, which may show the key.
            raise AcmeError("server", "acme_eab_hmac_key is not valid base64url") from None

    def order(self, host: str) -> str:
        """The URL of a new order."""
        name = messages.Identifier(typ=messages.IDENTIFIER_FQDN, value=host)
        return _location(self._post(self._new["newOrder"], messages.NewOrder(identifiers=(name,))))

    def look(self, url: str) -> OrderStatus:
        """The order, and where it waits for proofs, those it waits for."""
        answer = self._post(url, None)
        retry_after_s = self._retry_after_s
        with self._meaning():
            order = messages.Order.from_json(answer.json())
            status = str(order.status.name)
        if order.status == messages.STATUS_INVALID:
            reason = "" if order.error is None else f": {_said(order.error)}"
            raise AcmeError("order", f"the server rejected the order{self._why(order) or reason}")
        proofs: tuple[ChallengeProof, ...] = ()
        if order.status == messages.STATUS_PENDING:
            asked = order.authorizations[:AUTHORIZATIONS_MAX]
            proofs = tuple(each for one in asked for each in self._proofs(one))
            retry_after_s = self._retry_after_s or retry_after_s
        return OrderStatus(status, proofs, order.finalize, order.certificate, retry_after_s)

    def answer(self, url: str) -> None:
        """Tell the server that the challenge can be looked at now."""
        self._post(url, TlsAlpn01Response(key_authorization=""))

    def finalize(self, url: str, csr_pem: bytes) -> None:
        csr = x509.load_pem_x509_csr(csr_pem)
        self._post(url, messages.CertificateRequest(csr=csr))

    def download(self, url: str) -> bytes:
        """The certificate and its chain."""
        return self._post(url, None).content

    def _proofs(self, url: str) -> Iterator[ChallengeProof]:
        authorization = self._authorization(url)
        if authorization.status == messages.STATUS_INVALID:
            raise AcmeError("order", f"the server rejected the order{_refusal(authorization)}")
        if authorization.status != messages.STATUS_PENDING:
            return
        for each in authorization.challenges:
            if isinstance(each.chall, TlsAlpn01):
                asked = each.status != messages.STATUS_PENDING
                yield ChallengeProof(each.uri, each.chall.key_authorization(self._key), asked)
                return
        raise AcmeError("order", "the server does not offer a tls-alpn-01 challenge")

    def _why(self, order: messages.Order) -> str:
        """What the server found wrong with a proof, where that is why."""
        for url in order.authorizations[:AUTHORIZATIONS_MAX]:
            if reason := _refusal(self._authorization(url)):
                return reason
        return ""

    def _authorization(self, url: str) -> messages.Authorization:
        answer = self._post(url, None)
        with self._meaning():
            found: messages.Authorization = messages.Authorization.from_json(answer.json())
        return found

    def _use(self, account_url: str) -> None:
        body = messages.Registration()
        self._net.account = messages.RegistrationResource(body=body, uri=account_url)

    def _post(self, url: str, message: JSONDeSerializable | None) -> requests.Response:
        with self._meaning():
            for _ in range(NONCES_MAX - 1):
                try:
                    return self._post_once(url, message)
                except messages.Error as error:
                    # Any nonce may be refused, and so may the one that the library tries next.
                    if error.code != "badNonce":
                        raise
            return self._post_once(url, message)

    def _post_once(self, url: str, message: JSONDeSerializable | None) -> requests.Response:
        # The library takes None for a POST-as-GET.
        return self._net.post(url, message, new_nonce_url=self._new["newNonce"])

    def _note(self, answer: requests.Response, *_: Any, **__: Any) -> None:
        self._retry_after_s = retry_after(answer.headers.get("Retry-After"))
        self._failing = answer.status_code >= SERVER_ERROR

    @contextmanager
    def _meaning(self, elsewhere: Kind = "order") -> Iterator[None]:
        """The library's exceptions as ours, with how long the server wants to be left alone.

        An order whose URLs lead `elsewhere` is over: nothing would ever come of it.
        """
        self._retry_after_s, self._failing = None, False
        try:
            yield
        except AcmeError:
            raise
        except messages.Error as error:
            raise AcmeError(self._kind(error.code), _said(error), self._retry_after_s) from error
        except answers.Elsewhere as error:
            raise AcmeError(elsewhere, str(error)) from error
        except (InvalidURL, MissingSchema) as error:
            raise AcmeError(elsewhere, answers.NOT_HTTPS) from error
        except OSError as error:  # those of requests are some, too
            text = f"the ACME server cannot be reached ({type(error).__name__})"
            raise AcmeError("server", text) from error
        except BROKEN as error:
            raise AcmeError("server", STRANGE, self._retry_after_s) from error

    def _kind(self, code: str | None) -> Kind:
        if self._failing:
            return "server"
        if code == "accountDoesNotExist":
            return "account"
        if code == "rateLimited":
            return "limited"
        return "order" if code in GONE else "refused"


def _location(answer: requests.Response) -> str:
    found = answer.headers.get("Location")
    if not found:
        raise AcmeError("server", STRANGE)
    return str(found)


def retry_after(header: str | None) -> float | None:
    """Seconds from now; both forms of RFC 9110."""
    if header is None:
        return None
    if header.strip().isdigit():
        return float(header)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _refusal(authorization: messages.Authorization) -> str:
    errors = [each.error for each in authorization.challenges if each.error is not None]
    return f": {_said(errors[0])}" if errors else ""


def _said(error: messages.Error) -> str:
    found = [error, *(error.subproblems or ())]
    text = "; ".join(f"{each.code}: {each.detail}" for each in found)
    # Between words: of half an address nobody would know that it is one.
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX].rpartition(' ')[0]} …"
