"""The composition root: settings, first start, the processes, the `menagerie` command."""

__version__ = "1.0.0"
