"""Runs the DuckDB service for a test, as `python -m instance_services.duckdb` does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
# Loads all of it, but for what it hides.
import instance_services.duckdb.__main__ as _loaded  # noqa: F401
from contract_tests.loaded import load_document
from instance_services.duckdb import service
from instance_services.duckdb.command import main as serve

load_document(service)


def main(arguments: list[str]) -> None:
    sys.exit(serve(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
