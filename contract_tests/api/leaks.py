"""Reports of leaked keys as a secret scanner signs them."""

import base64
import json
from dataclasses import replace
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from contract_tests.api.harness import House

SCANNER = ec.generate_private_key(ec.SECP256R1())
KEY_ID = "scanner-1"
PATH = "/v1/leak-reports"


def pem(private: ec.EllipticCurvePrivateKey = SCANNER) -> str:
    form = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private.public_key().public_bytes(*form).decode()


def trust(house: House) -> None:
    """Have the house take reports of the scanner."""
    settings = replace(house.services.settings, leak_report_keys={KEY_ID: pem()})
    object.__setattr__(house.services, "settings", settings)


def match(token: str, **others: Any) -> dict[str, Any]:
    place = {"url": "https://example.com/config.py", "source": "content"}
    return {"token": token, "type": "menagerie_api_key", **place, **others}


def signature(body: bytes, private: ec.EllipticCurvePrivateKey = SCANNER) -> str:
    return base64.b64encode(private.sign(body, ec.ECDSA(SHA256()))).decode()


def headers(body: bytes, **others: str) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "Github-Public-Key-Identifier": KEY_ID,
        "Github-Public-Key-Signature": signature(body),
        **others,
    }


def report(house: House, *matches: dict[str, Any]) -> httpx.Response:
    body = json.dumps(matches).encode()
    return house.post(PATH, content=body, headers=headers(body))
