"""The exceptions storage raises; the boundary turns them into problem details."""


class StorageError(Exception):
    """A fact about stored state, in lower case, that a caller may read."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class RecordNotFound(StorageError):  # noqa: N818 - a fact about a record, not a fault of the program
    """Nothing of that id in the caller's organization."""


class StateConflict(StorageError):  # noqa: N818 - a fact about a record, not a fault of the program
    """The record's state, or another record, forbids it."""


class StorageUnavailable(StorageError):  # noqa: N818 - a fact about a record, not a fault of the program
    """The database cannot serve now (disk full, locked too long, restarting); a retry may work."""


class SchemaUnknown(StorageError):  # noqa: N818 - as above
    """The database is at a revision of the schema that this version does not have."""
