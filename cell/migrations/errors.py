"""What ends a migration, said to its owner."""


class MigrationError(Exception):
    """The migration cannot go on; the text is for the owner and holds no secret."""


class SourceUnreachableError(MigrationError):
    """Nobody answers where the source is said to be, or not as it should."""


class FollowError(MigrationError):
    """What a source sends cannot be followed, now and later."""


class NotCaughtUpError(MigrationError):
    """A cutover that cannot be made now; the sync goes on."""


class ReverseSyncEndedError(MigrationError):
    """The source can get no more changes of the instance; the text says why."""
