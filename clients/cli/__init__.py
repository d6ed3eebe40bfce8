"""The command line: every operation of the document as a command, and a few shortcuts.

    from clients.cli import app, run, command_names

`app` is a typer.Typer: a room above may add commands of its own with `@app.command()`, and they
stand beside the client's. Nothing slow is imported before a command needs it.
"""

from clients.cli.app import app, command_names, run

__all__ = ["app", "command_names", "run"]
