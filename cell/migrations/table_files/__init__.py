"""CSV and Parquet files that become tables, whatever the engine."""
