"""What a backup is: an object of its own, written last; what has none does not count."""

import hashlib
import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, Self

import orjson

from cell.backups import sealed_objects
from cell.backups.sealed_objects import DamagedError

FORMAT: Final = 1
MANIFEST: Final = "manifest"
MANIFEST_BYTES_MAX: Final = 1 << 26
Kind = Literal["scheduled", "manual", "pre_change"]
Method = Literal["restored", "checksums"]


_BACKUP_ID: Final = re.compile(r"bkp_[0-9A-Za-z]+")


def is_backup_id(name: str) -> bool:
    """Else somebody put it there: by the name "wal", all archived WAL would be taken for parts."""
    return _BACKUP_ID.fullmatch(name) is not None


@dataclass(frozen=True)
class BackupName:
    """Whose backup, and which; all that names of objects tell."""

    instance_id: str
    backup_id: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of `<instance_id>/<backup_id>`."""
        instance_id, _, backup_id = text.partition("/")
        return cls(instance_id, backup_id)

    @property
    def prefix(self) -> str:
        return f"{self.instance_id}/{self.backup_id}/"

    @property
    def manifest(self) -> str:
        return f"{self.prefix}{MANIFEST}"

    def part(self, number: int) -> str:
        return f"{self.prefix}part-{number:06}"


@dataclass(frozen=True)
class Part:
    """An object as it is stored; which one is said by its place in the manifest."""

    stored_bytes: int
    sha256: str


@dataclass(frozen=True)
class StoredContent:
    """The stream that the parts are together, once unsealed and decompressed."""

    stream_bytes: int
    stream_sha256: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Verification:
    """`at` is in unix seconds; `digest` of what was counted in the data, or of the stream.

    `notice` is what the engine that was started with it could not read or left out, for the owner.
    """

    method: Method
    at: float
    digest: str
    notice: str | None = None


@dataclass(frozen=True)
class WalStart:
    """Where the archived WAL of a chain continues the backup: the name of the first segment.

    From `consistent_at` (unix seconds) on, all moments of the chain can be recovered.
    """

    chain_id: str
    first: str
    consistent_at: float


@dataclass(frozen=True)
class Parent:
    """The backup that an incremental one builds on. `sha256` is of its manifest as it is stored."""

    backup_id: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Times are unix seconds. `size_bytes` is the copied data's, as its driver counts."""

    instance_id: str
    backup_id: str
    kind: Kind
    engine: str
    engine_version: str
    size_bytes: int
    started_at: float
    completed_at: float
    content: StoredContent
    extensions: tuple[str, ...] = ()
    verification: Verification | None = None
    wal: WalStart | None = None
    parent: Parent | None = None
    stored_sha256: str = ""
    """Of the manifest itself as it lies in the store; not in it."""
    manifest_bytes: int = 0
    from_copy: bool = False
    """Read from the second store; not in it either."""

    @property
    def name(self) -> BackupName:
        return BackupName(self.instance_id, self.backup_id)

    @property
    def is_incremental(self) -> bool:
        return self.parent is not None

    @property
    def stored_bytes(self) -> int:
        return self.manifest_bytes + sum(part.stored_bytes for part in self.content.parts)

    def seal(self, key: bytes, wrapped_key: bytes) -> bytes:
        """The object; `wrapped_key` is readable in it."""
        document = {"format": FORMAT, **asdict(self)}
        for each in ("stored_sha256", "manifest_bytes", "from_copy"):
            del document[each]
        if self.parent is None:
            # What is whole is read by earlier versions, too.
            del document["parent"]
        return sealed_objects.seal(key, self.name.manifest, orjson.dumps(document), wrapped_key)

    def stored_as(self, sealed: bytes) -> "Manifest":
        """The same, with what is known once it is sealed."""
        digest = hashlib.sha256(sealed).hexdigest()
        return replace(self, stored_sha256=digest, manifest_bytes=len(sealed))

    @classmethod
    def unseal(cls, key: bytes, name: BackupName, sealed: bytes) -> "Manifest":
        """Raises DamagedError, also where it is another backup's."""
        document = sealed_objects.unseal(key, name.manifest, sealed)
        try:
            opened = orjson.loads(document)
            if opened.pop("format") != FORMAT:
                raise DamagedError("the backup was written by a newer version")
            made = cls(**{**opened, **_nested(opened)})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Whoever has the store and the public half of the recovery key can seal anything.
            raise DamagedError("the manifest does not say what a backup is") from error
        if made.name != name:
            raise DamagedError("the manifest is of another backup")
        return made.stored_as(sealed)


def _nested(opened: dict[str, Any]) -> dict[str, Any]:
    content, verification = opened["content"], opened["verification"]
    # Absent from what an earlier version wrote.
    wal, parent = opened.get("wal"), opened.get("parent")
    if parent is not None and not is_backup_id(parent["backup_id"]):
        raise ValueError("what it builds on is no backup")
    parts = tuple(Part(**each) for each in content["parts"])
    sizes = [opened["size_bytes"], content["stream_bytes"], *(each.stored_bytes for each in parts)]
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise TypeError("a size is no number")
    return {
        "content": StoredContent(**{**content, "parts": parts}),
        "verification": None if verification is None else Verification(**verification),
        "wal": None if wal is None else WalStart(**wal),
        "parent": None if parent is None else Parent(**parent),
        "extensions": tuple(opened["extensions"]),
    }
