"""The HTTP query server of one DuckDB database: `python -m instance_services.duckdb`."""
