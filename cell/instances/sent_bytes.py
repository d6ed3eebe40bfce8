"""What connections have sent out in an hour, as the gateway's workers have written it down."""

from collections import Counter
from pathlib import Path

import orjson


def of_hour(directory: Path, hour: int) -> Counter[str]:
    """By instance, over all workers, also those that are gone; `hour` is counted since 1970."""
    found = Counter[str]()
    for path in directory.glob("*.json"):
        try:
            told = orjson.loads(path.read_bytes()).get(str(hour), {})
        except FileNotFoundError:
            continue  # too old, and just removed
        found.update(told)
    return found
