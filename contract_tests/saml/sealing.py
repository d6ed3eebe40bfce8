"""Assertions encrypted as providers do it, by any algorithm."""

import base64
import os
from typing import Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP, PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from lxml import etree

from control.sso.saml.documents import DS, SAML, XENC, XENC11, Element

GCM: Final = f"{XENC11}aes256-gcm"
CBC: Final = f"{XENC}aes256-cbc"
MGF1P: Final = f"{XENC}rsa-oaep-mgf1p"
SHA256_OAEP: Final = (
    f'<ds:DigestMethod xmlns:ds="{DS}" Algorithm="{XENC}sha256"/>'
    f'<m:MGF xmlns:m="{XENC11}" Algorithm="{XENC11}mgf1sha256"/>'
)


def encrypted(content: bytes, public: RSAPublicKey, **said: Any) -> Element:
    """An EncryptedAssertion. `said` replaces what is usual."""
    told: dict[str, Any] = {
        "algorithm": GCM,
        "wrapping": MGF1P,
        "method_inside": "",
        "secret": os.urandom(32),
        "padding": OAEP(MGF1(hashes.SHA1()), hashes.SHA1(), None),
        "beside": False,
        "sealed": None,
        **said,
    }
    secret = told["secret"]
    sealed = told["sealed"] or (gcm if told["algorithm"].endswith("gcm") else cbc)(content, secret)
    key = (
        f'<xenc:EncryptedKey xmlns:xenc="{XENC}"><xenc:EncryptionMethod'
        f' Algorithm="{told["wrapping"]}">{told["method_inside"]}</xenc:EncryptionMethod>'
        f"{_data(public.encrypt(secret, told['padding']))}</xenc:EncryptedKey>"
    )
    inside = "" if told["beside"] else f'<ds:KeyInfo xmlns:ds="{DS}">{key}</ds:KeyInfo>'
    return etree.fromstring(
        f'<saml:EncryptedAssertion xmlns:saml="{SAML}"><xenc:EncryptedData xmlns:xenc="{XENC}">'
        f'<xenc:EncryptionMethod Algorithm="{told["algorithm"]}"/>{inside}{_data(sealed)}'
        f"</xenc:EncryptedData>{key if told['beside'] else ''}</saml:EncryptedAssertion>"
    )


def gcm(content: bytes, secret: bytes) -> bytes:
    nonce = os.urandom(12)
    return nonce + AESGCM(secret).encrypt(nonce, content, None)


def cbc(content: bytes, secret: bytes) -> bytes:
    nonce = os.urandom(16)
    missing = 16 - len(content) % 16
    padded = content + b"\0" * (missing - 1) + bytes([missing])
    cipher = Cipher(algorithms.AES(secret), modes.CBC(nonce)).encryptor()
    return nonce + cipher.update(padded) + cipher.finalize()


def _data(content: bytes) -> str:
    text = base64.b64encode(content).decode()
    return (
        f'<xenc:CipherData xmlns:xenc="{XENC}"><xenc:CipherValue>{text}</xenc:CipherValue>'
        "</xenc:CipherData>"
    )


PKCS1: Final = PKCS1v15()
