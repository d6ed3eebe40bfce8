"""Runs the DuckDB service for a test, as `python -m instance_services.duckdb` does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from instance_services.duckdb.__main__ import main as serve  # noqa: E402


def main(arguments: list[str]) -> None:
    sys.exit(serve(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
