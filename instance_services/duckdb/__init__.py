"""The HTTP query server of one DuckDB database: `python -m instance_services.duckdb`."""

import os

# The engine's allocator reads this as it is loaded. It would keep what was freed for later, and at
# the limit of the process (memory.py) a small statement would fail for what a large one had taken.
os.environ.setdefault(
    "DUCKDB_JE_MALLOC_CONF", "retain:false,dirty_decay_ms:0,muzzy_decay_ms:0,narenas:1"
)
