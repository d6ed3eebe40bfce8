"""An identity provider that is not ours: pysaml2's, which signs and verifies with xmlsec1."""

import base64
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from saml2 import BINDING_HTTP_POST, BINDING_HTTP_REDIRECT
from saml2.authn_context import PASSWORD
from saml2.config import IdPConfig
from saml2.metadata import entity_descriptor
from saml2.saml import NAME_FORMAT_URI, NAMEID_FORMAT_PERSISTENT, NameID
from saml2.server import Server
from saml2.sigver import SIG_RSA_SHA256
from saml2.xmldsig import DIGEST_SHA256

from contract_tests.saml.provider import Signer

# What it does unless it is told: SHA-1.
STRONG = {"sign_alg": SIG_RSA_SHA256, "digest_alg": DIGEST_SHA256}
XMLSEC = shutil.which("xmlsec1")


def skip_without() -> None:
    if XMLSEC is None:
        pytest.skip("xmlsec1 is not installed")


class IdentityProvider:
    """`base` is where it is, `ours` the metadata of the service that it signs people in to."""

    def __init__(
        self,
        base: str,
        folder: Path,
        signer: Signer,
        ours: bytes = b"",
        *,
        wants_signed: bool = False,
    ) -> None:
        self.base = base
        files = self._write(folder, signer)
        config = {
            "entityid": f"{base}/metadata",
            "key_file": files[0],
            "cert_file": files[1],
            "xmlsec_binary": XMLSEC,
            "metadata": {"inline": [ours.decode()]} if ours else {},
            "service": {
                "idp": {
                    "endpoints": {
                        "single_sign_on_service": [(f"{base}/sso", BINDING_HTTP_REDIRECT)]
                    },
                    "want_authn_requests_signed": wants_signed,
                    "policy": {
                        "default": {"lifetime": {"minutes": 5}, "name_form": NAME_FORMAT_URI}
                    },
                }
            },
        }
        self.config = IdPConfig().load(config)
        self.server = Server(config=self.config) if ours else None

    @property
    def metadata(self) -> bytes:
        return str(entity_descriptor(self.config)).encode()

    def asked(self, query: dict[str, str]) -> Any:
        """The request in a query, as its library reads it."""
        assert self.server is not None
        return self.server.parse_authn_request(
            query["SAMLRequest"],
            BINDING_HTTP_REDIRECT,
            relay_state=query.get("RelayState"),
            sigalg=query.get("SigAlg"),
            signature=query.get("Signature"),
        ).message

    def answer(self, query: dict[str, str], email: str, **options: Any) -> str:
        """The response (base64) that somebody with this address has signed in."""
        assert self.server is not None
        told = {"sign_assertion": True, "sign_response": False, **STRONG, **options}
        response = self.server.create_authn_response(
            {"mail": [email], "displayName": ["Ada Lovelace"], "isMemberOf": ["engineers"]},
            **self.server.response_args(self.asked(query)),
            userid=email,
            name_id=NameID(format=NAMEID_FORMAT_PERSISTENT, text=f"persistent-{email}"),
            authn={"class_ref": PASSWORD, "authn_auth": self.base},
            **told,
        )
        return base64.b64encode(str(response).encode()).decode()

    def form(self, query: dict[str, str], email: str, destination: str) -> str:
        """The page that sends a browser on."""
        assert self.server is not None
        text = base64.b64decode(self.answer(query, email)).decode()
        state = query.get("RelayState", "")
        told = self.server.apply_binding(BINDING_HTTP_POST, text, destination, state, response=True)
        return str(told["data"])

    @staticmethod
    def _write(folder: Path, signer: Signer) -> tuple[str, str]:
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        key.write_bytes(
            signer.key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        certificate.write_text(signer.pem)
        return str(key), str(certificate)


_TEMPLATE = """<xenc:EncryptedData xmlns:xenc="http://www.w3.org/2001/04/xmlenc#"
 Type="http://www.w3.org/2001/04/xmlenc#Element"><xenc:EncryptionMethod Algorithm="{}"/>
 <ds:KeyInfo xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><xenc:EncryptedKey>
 <xenc:EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#rsa-oaep-mgf1p"/>
 <ds:KeyInfo><ds:KeyName/></ds:KeyInfo>
 <xenc:CipherData><xenc:CipherValue/></xenc:CipherData></xenc:EncryptedKey></ds:KeyInfo>
 <xenc:CipherData><xenc:CipherValue/></xenc:CipherData></xenc:EncryptedData>"""


def encrypted(content: bytes, certificate: str, algorithm: str, folder: Path) -> bytes:
    """By xmlsec1, with AES-256; `algorithm` is the URI of its mode."""
    assert XMLSEC is not None
    data, template, public = (folder / name for name in ("data.xml", "template.xml", "cert.pem"))
    data.write_bytes(content)
    template.write_text(_TEMPLATE.format(algorithm))
    public.write_text(certificate)
    words = [XMLSEC, "--encrypt", "--pubkey-cert-pem", str(public), "--session-key", "aes-256"]
    words += ["--xml-data", str(data), str(template)]
    return subprocess.run(words, capture_output=True, check=True).stdout
