"""The `menagerie` command: the client's commands and the server's, in one."""

import sys

from clients.cli import app, run
from menagerie import commands
from menagerie.unwanted import hide


def main() -> None:
    """Run the command line; never returns."""
    hide("trio")
    commands.register(app)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
