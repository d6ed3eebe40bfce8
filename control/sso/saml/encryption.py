"""An encrypted assertion, opened with the connection's key (XML Encryption 1.1, what SAML uses).

RSA-OAEP wraps the key; RSA with PKCS #1 1.5 is refused, as its padding answers questions. AES in
GCM, and in CBC, which some providers know alone: the caller gives one answer to all that is wrong
with either. No library without native code of another XML parser does this.
"""

import base64
import binascii
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from control.sso.saml import documents
from control.sso.saml.documents import DS, XENC, XENC11, Element, XmlRefused, child, tag

_GCM: Final = {f"{XENC11}aes128-gcm": 16, f"{XENC11}aes192-gcm": 24, f"{XENC11}aes256-gcm": 32}
_CBC: Final = {f"{XENC}aes128-cbc": 16, f"{XENC}aes192-cbc": 24, f"{XENC}aes256-cbc": 32}
"""With the bytes of their keys."""
_OAEP_MGF1P: Final = f"{XENC}rsa-oaep-mgf1p"
_OAEP: Final = f"{XENC11}rsa-oaep"
# As parts of OAEP: a collision of SHA-1 is of no use there, and it is the default of the standard.
_DIGESTS: Final[dict[str, hashes.HashAlgorithm]] = {
    f"{DS}sha1": hashes.SHA1(),  # noqa: S303 -- see above
    f"{XENC}sha256": hashes.SHA256(),
    "http://www.w3.org/2001/04/xmldsig-more#sha384": hashes.SHA384(),
    f"{XENC}sha512": hashes.SHA512(),
}
_MASKS: Final[dict[str, hashes.HashAlgorithm]] = {
    f"{XENC11}mgf1sha1": hashes.SHA1(),  # noqa: S303 -- see above
    f"{XENC11}mgf1sha256": hashes.SHA256(),
    f"{XENC11}mgf1sha384": hashes.SHA384(),
    f"{XENC11}mgf1sha512": hashes.SHA512(),
}
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_BLOCK_BYTES: Final = 16


def decrypted(sealed: Element, key: RSAPrivateKey) -> bytes:
    """The XML in an EncryptedAssertion. Raises XmlRefused."""
    data = _needed(sealed, XENC, "EncryptedData")
    algorithm = _algorithm(data)
    key_bytes = {**_GCM, **_CBC}.get(algorithm)
    if key_bytes is None:
        raise XmlRefused("is encrypted by an algorithm that is not accepted")
    secret = _unwrapped(_encrypted_key(sealed, data), key)
    if len(secret) != key_bytes:
        raise XmlRefused("is encrypted with a key of another length")
    content = _content(data)
    return _gcm(secret, content) if algorithm in _GCM else _cbc(secret, content)


def _encrypted_key(sealed: Element, data: Element) -> Element:
    """In the data's KeyInfo, or beside the data. One; what refers to others is not followed."""
    info = child(data, DS, "KeyInfo")
    inside = None if info is None else child(info, XENC, "EncryptedKey")
    beside = child(sealed, XENC, "EncryptedKey")
    found = [each for each in (inside, beside) if each is not None]
    if len(found) != 1:
        raise XmlRefused("must have one key, encrypted for this service")
    return found[0]


def _unwrapped(wrapped: Element, key: RSAPrivateKey) -> bytes:
    method = _needed(wrapped, XENC, "EncryptionMethod")
    algorithm = method.get("Algorithm")
    if algorithm not in {_OAEP_MGF1P, _OAEP}:
        raise XmlRefused("has a key that is not encrypted by RSA-OAEP")
    digest = child(method, DS, "DigestMethod")
    mask = child(method, XENC11, "MGF")
    if any(each.tag == tag(XENC, "OAEPparams") for each in method):
        raise XmlRefused("has parameters of OAEP that are not accepted")
    by = _DIGESTS.get(f"{DS}sha1" if digest is None else digest.get("Algorithm", ""))
    with_mask = _MASKS.get(f"{XENC11}mgf1sha1" if mask is None else mask.get("Algorithm", ""))
    if by is None or with_mask is None or (mask is not None and algorithm == _OAEP_MGF1P):
        raise XmlRefused("has a key encrypted with digests that are not accepted")
    try:
        return key.decrypt(_content(wrapped), OAEP(MGF1(with_mask), by, None))
    except ValueError:
        raise XmlRefused("has a key that is not encrypted for this service") from None


def _gcm(secret: bytes, content: bytes) -> bytes:
    if len(content) <= _NONCE_BYTES + _TAG_BYTES:
        raise XmlRefused("is too short")
    try:
        return AESGCM(secret).decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], None)
    except InvalidTag:
        raise XmlRefused("was changed") from None


def _cbc(secret: bytes, content: bytes) -> bytes:
    if len(content) <= _BLOCK_BYTES or len(content) % _BLOCK_BYTES:
        raise XmlRefused("is not whole")
    cipher = Cipher(algorithms.AES(secret), modes.CBC(content[:_BLOCK_BYTES])).decryptor()
    padded = cipher.update(content[_BLOCK_BYTES:]) + cipher.finalize()
    # Of this padding only the last byte says anything (XML Encryption 5.2).
    if not 0 < padded[-1] <= _BLOCK_BYTES:
        raise XmlRefused("is not padded as it should be")
    return padded[: -padded[-1]]


def _algorithm(element: Element) -> str:
    return _needed(element, XENC, "EncryptionMethod").get("Algorithm", "")


def _content(element: Element) -> bytes:
    value = _needed(_needed(element, XENC, "CipherData"), XENC, "CipherValue")
    try:
        return base64.b64decode("".join(documents.text_of(value).split()), validate=True)
    except (binascii.Error, ValueError):
        raise XmlRefused("has a cipher text that is not base64") from None


def _needed(parent: Element, namespace: str, name: str) -> Element:
    found = child(parent, namespace, name)
    if found is None:
        raise XmlRefused(f"has no {name}")
    return found
