"""What ends a command of the server."""


class SettingsError(Exception):
    """A setting that cannot be used; the message names it and says where it was set."""
