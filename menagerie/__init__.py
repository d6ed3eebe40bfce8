"""The composition root: settings, first start, the processes, the `menagerie` command."""
