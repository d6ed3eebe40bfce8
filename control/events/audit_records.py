"""The signed log of the audit log's heads: what a record says, and how it is checked.

Each record is a line of JSON with sorted members. It has the SHA-256 hash of the line before it,
and two kinds of signatures (Ed25519): one over itself, and one over each head, so that an
organization can check its own head without seeing others'.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from control.cells.signing import Signer

HEAD: Final = "menagerie audit head"
RECORD: Final = "menagerie audit record"
_OF_HEAD: Final = ("chain", "seq", "hash", "time")

Json = dict[str, Any]


def signed_heads(signer: Signer, heads: Sequence[Mapping[str, Any]], time: str) -> list[Json]:
    """With a signature each; a head names its chain, its last entry's number and hash."""
    return [
        {**head, "signature": signer.sign(HEAD, _text({**head, "time": time}))} for head in heads
    ]


def line_of(signer: Signer, number: int, previous: str, time: str, heads: Sequence[Json]) -> str:
    """A record of the log, signed. `previous` is the hash of the line before."""
    record = {
        "heads": list(heads),
        "number": number,
        "previous": previous,
        "public_key": encoded(signer.public_key),
        "time": time,
    }
    return _text({**record, "signature": signer.sign(RECORD, _text(record))}).decode()


def hash_of(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()


def is_head_signed(head: Mapping[str, Any], time: str, public_key: str) -> bool:
    said = {name: time if name == "time" else head.get(name) for name in _OF_HEAD}
    return _is_signed(HEAD, _text(said), head.get("signature"), public_key)


def is_record_signed(record: Mapping[str, Any]) -> bool:
    said = {name: value for name, value in record.items() if name != "signature"}
    return _is_signed(RECORD, _text(said), record.get("signature"), record.get("public_key"))


def encoded(public_key: bytes) -> str:
    """As it is shown: the raw 32 bytes in base64url."""
    return base64.urlsafe_b64encode(public_key).rstrip(b"=").decode()


def _is_signed(purpose: str, said: bytes, signature: object, public_key: object) -> bool:
    try:
        key = Ed25519PublicKey.from_public_bytes(_decoded(public_key))
        key.verify(_decoded(signature), purpose.encode() + b"\n" + said)
    except (InvalidSignature, ValueError, binascii.Error):
        return False
    return True


def _decoded(text: object) -> bytes:
    written = str(text)
    return base64.urlsafe_b64decode(written + "=" * (-len(written) % 4))


def _text(said: Mapping[str, Any]) -> bytes:
    return orjson.dumps(said, option=orjson.OPT_SORT_KEYS)
