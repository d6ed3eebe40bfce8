"""What owners are told of what went wrong."""

import re

REASON_CHARACTERS = 400
# Paths of two parts or more, and addresses in memory or of machines.
PLACE = re.compile(
    r"(?<![\w:/])(?:/[\w.+@-]+){2,}/?|\b0x[0-9a-fA-F]{4,}\b|\b\d{1,3}(?:\.\d{1,3}){3}\b"
)


def for_owner(reason: str) -> str:
    """What went wrong without what only operators should read: paths, addresses, stack traces."""
    said = [line.strip() for line in reason.splitlines() if line.strip()]
    # Of a stack trace the last line says what it was.
    traced = next((n for n, line in enumerate(said) if line.startswith("Traceback")), None)
    if traced is not None:
        said = [*said[:traced], said[-1]]
    text = PLACE.sub("…", " ".join(said))
    return text if len(text) <= REASON_CHARACTERS else f"{text[: REASON_CHARACTERS - 1]}…"
