"""Owns how archives that somebody else made are read: what a header may have the reader do."""

import tarfile
from typing import Final, Never, Self

HEADER_BYTES_MAX: Final = 16 * 1024
_MORE_OF_A_MEMBER: Final = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE),
)
_NOT_OF_FILES: Final = (tarfile.XGLTYPE, tarfile.GNUTYPE_SPARSE)


class TarHeaderError(Exception):
    """A header that no archive of plain files needs."""


class BoundedTarInfo(tarfile.TarInfo):
    """Headers that say more of a member are read into memory whole, and one after another."""

    def _proc_member(self, archive: tarfile.TarFile) -> Self | None:
        if self.type in _MORE_OF_A_MEMBER and self.size > HEADER_BYTES_MAX:
            raise TarHeaderError("a header of the archive is too long")
        if self.type in _NOT_OF_FILES:
            raise TarHeaderError("the archive has sparse files, or headers for all members")
        return super()._proc_member(archive)  # type: ignore[misc, no-any-return]

    def _proc_gnusparse_10(self, *_: object) -> Never:
        """Its list of blocks is in the content, and as long as that."""
        raise TarHeaderError("the archive has sparse files, or headers for all members")
