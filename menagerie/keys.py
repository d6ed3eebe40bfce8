"""The key files of an installation: made at the first start, 0600, never in the database."""

import os
import secrets
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ulid import ULID

from menagerie.errors import SettingsError


def write_private(path: Path, content: bytes) -> None:
    """Write a file only its owner can read, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _replace(path, content, 0o600)


def write_public(path: Path, content: bytes) -> None:
    """Write a file that everybody can read, whole or not at all."""
    _replace(path, content, 0o644)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Put a new file in the place of whatever is there: a link is replaced, not followed."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _made_once(path: Path, fresh: bytes) -> bytes:
    if not path.exists():
        write_private(path, fresh)
    return path.read_bytes()


def _key(path: Path, fresh: bytes) -> bytes:
    """Raises SettingsError for a file that was cut short: a new key would open nothing."""
    found = _made_once(path, fresh)
    if len(found) != len(fresh):
        raise SettingsError(
            f"{path} has {len(found)} bytes instead of {len(fresh)}: restore the file from a backup"
        )
    return found


def seal_key(root: Path) -> bytes:
    """The 32 bytes that seal what the database holds."""
    return _key(root / "keys" / "seal.key", secrets.token_bytes(32))


def cursor_key(root: Path) -> bytes:
    """The 32 bytes that sign list cursors."""
    return _key(root / "keys" / "cursor.key", secrets.token_bytes(32))


def signing_key(root: Path) -> Ed25519PrivateKey:
    """The key that signs one-time URLs and requests to cells."""
    fresh = Ed25519PrivateKey.generate().private_bytes_raw()
    return Ed25519PrivateKey.from_private_bytes(_key(root / "keys" / "signing.key", fresh))


def public_key(root: Path) -> bytes:
    """The 32 raw bytes a cell checks those signatures with."""
    return (
        signing_key(root)
        .public_key()
        .public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    )


def cell_id(root: Path) -> str:
    """The id of this installation's own cell: made once, then kept."""
    return _made_once(root / "keys" / "cell.id", f"cell_{ULID()}".encode()).decode().strip()


def make_all(root: Path) -> None:
    """Make every key file that is missing, before the parts that read them start."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    seal_key(root)
    cursor_key(root)
    signing_key(root)
    cell_id(root)
