"""Tools for developers: lint, test runs, benchmarks, load and faults."""
