"""Owns how much memory the process may ask for.

The engine's own limit does not count everything: long texts, states of aggregates and what Python
holds go beyond it, and the kernel would end the process at the size's limit. The process is refused
memory before that: then a statement fails, and not the engine.
"""

import resource


def limit(process_bytes: int) -> None:
    """Counted is what may be written, touched or not; what is mapped of files is not."""
    resource.setrlimit(resource.RLIMIT_DATA, (process_bytes, process_bytes))
