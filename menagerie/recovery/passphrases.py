"""The passphrase of an installation's backups: where it is told, and the key made of it."""

import hashlib
import hmac
import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self

from cell.backups.sealed_objects import KEY_BYTES, DamagedError
from menagerie.errors import SettingsError
from menagerie.settings import Settings

LENGTH_MIN: Final = 12
# Takes 128 MiB of memory and half a second. The same on a busy machine: how hard a passphrase is to
# guess must not depend on what else ran while a backup was made.
COST: Final = 1 << 17
BYTES_MAX: Final = 4096
VARIABLE: Final = "MENAGERIE_INSTALLATION_BACKUP_PASSPHRASE"
# What a file may ask of whoever reads it: as much memory as eight times what we write.
_N_MAX: Final = 1 << 20
_MEMORY_BYTES: Final = 3 << 29


class PassphraseError(Exception):
    """It opens nothing."""


@dataclass(frozen=True)
class KeyDerivation:
    """How a key is made of a passphrase, as it stands in an archive. `check` knows a wrong one."""

    salt: str
    check: str = ""
    kdf: str = "scrypt"
    n: int = 0
    r: int = 8
    p: int = 1

    @classmethod
    def new(cls, passphrase: str) -> tuple[Self, bytes]:
        """With its key."""
        made = cls(os.urandom(16).hex(), n=COST)
        key = made._derive(passphrase)
        return replace(made, check=_check(key)), key

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Raises DamagedError: whoever could write the file may have written anything."""
        try:
            made = cls(**json.loads(text))
            bytes.fromhex(made.salt)
            sizes = [type(each) is int for each in (made.n, made.r, made.p)]
            fits = made.kdf == "scrypt" and all(sizes) and (made.r, made.p) == (8, 1)
            fits = fits and 1 < made.n <= _N_MAX and made.n.bit_count() == 1
            made.check.encode("ascii")
        except (AttributeError, ValueError, TypeError) as error:
            raise DamagedError("the archive does not say how its key is made") from error
        if not fits:
            raise DamagedError("the key of the archive is made in a way that this version lacks")
        return made

    def key(self, passphrase: str) -> bytes:
        """Raises PassphraseError."""
        key = self._derive(passphrase)
        if not hmac.compare_digest(_check(key), self.check):
            raise PassphraseError("the passphrase is not the one that the backup was made with")
        return key

    def written(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def _derive(self, passphrase: str) -> bytes:
        return hashlib.scrypt(
            passphrase.encode(),
            salt=bytes.fromhex(self.salt),
            n=self.n,
            r=self.r,
            p=self.p,
            maxmem=_MEMORY_BYTES,
            dklen=KEY_BYTES,
        )


def _check(key: bytes) -> str:
    return hmac.digest(key, b"menagerie installation backup check v1", "sha256").hex()[:16]


def find(settings: Settings, file: Path | None, *, is_new: bool) -> str:
    """Of the file that is named, the environment, the settings, or whoever is at the terminal.

    `is_new` is for a backup that is made: the passphrase is typed twice, and not too short.
    """
    passphrase = _told(settings, file)
    if passphrase is None:
        passphrase = _typed(is_new=is_new)
    if is_new and len(passphrase) < LENGTH_MIN:
        raise SettingsError(
            f"the passphrase has {len(passphrase)} characters; choose one of at least {LENGTH_MIN}"
        )
    return passphrase


def is_told(settings: Settings) -> bool:
    """Whether backups can be made without a person."""
    told = settings.installation_backup_passphrase, settings.installation_backup_passphrase_file
    return any(told)


def _told(settings: Settings, file: Path | None) -> str | None:
    if file is not None:
        return _read(file)
    if settings.installation_backup_passphrase:
        return settings.installation_backup_passphrase
    if settings.installation_backup_passphrase_file:
        return _read(Path(settings.installation_backup_passphrase_file))
    return None


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            content = opened.read(BYTES_MAX + 1)
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise SettingsError(f"the passphrase cannot be read from {file}: {why}") from error
    if not text or len(content) > BYTES_MAX:
        raise SettingsError(f"{file} must have one line, the passphrase")
    return text


def _typed(*, is_new: bool) -> str:
    if not sys.stdin.isatty():
        raise SettingsError(
            f"there is no passphrase: pass --passphrase-file, or set {VARIABLE}, or the setting"
            " installation_backup_passphrase_file"
        )
    import typer  # noqa: PLC0415 -- slow to import, and a schedule types nothing

    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=is_new, err=True))
