"""Runs the DuckDB service for a test, as `python -m instance_services.duckdb` does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from menagerie.unwanted import hide

# As instance_services/duckdb/__main__.py has it.
hide("rich", "pandas")

import uvicorn as _uvicorn  # noqa: E402, F401 -- loaded for all that are forked

from specserver.document import Document  # noqa: E402

DOCUMENT = Path(__file__).parents[2] / "instance_services" / "duckdb" / "openapi.yaml"
document = Document.load(DOCUMENT, checked=True)


def main(arguments: list[str]) -> None:
    # Not before: the engine's library begins a thread when it is loaded, and a fork has none of it.
    from instance_services.duckdb import __main__, command, service  # noqa: F401, PLC0415

    service.DOCUMENT = document
    sys.exit(command.main(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
