"""What ends a migration, said to its owner."""

from typing import Self


class MigrationError(Exception):
    """The migration cannot go on; the text is for the owner and holds no secret."""


class SourceUnreachableError(MigrationError):
    """Nobody answers where the source is said to be, or not as it should."""


class FollowError(MigrationError):
    """What a source sends cannot be followed, now and later."""


class NotCaughtUpError(MigrationError):
    """A cutover that cannot be made now; the sync goes on."""

    @classmethod
    def late(cls, within_s: float, reason: str | None) -> Self:
        told = f"not all that the source had came within {within_s:.0f} s"
        return cls(f"{told}; {reason or 'try the cutover again later'}")

    @classmethod
    def written(cls, changed: str) -> Self:
        return cls(
            f"the source was written to during the cutover ({changed}): end what writes to it, "
            "and cut over again"
        )


class ReverseSyncEndedError(MigrationError):
    """The source can get no more changes of the instance; the text says why."""
