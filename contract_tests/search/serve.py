"""Runs the search service for a test, as `python -m instance_services.search` does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from menagerie.unwanted import hide

# As instance_services/search/__main__.py has it.
hide("rich")

from instance_services.search import command, search_app  # noqa: E402
from specserver.document import Document  # noqa: E402

document = Document.load(search_app.DOCUMENT, checked=True)


def main(arguments: list[str]) -> None:
    search_app.DOCUMENT = document  # read once for all that are forked
    sys.exit(command.main(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
