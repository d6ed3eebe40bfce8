"""Slugs: made from names where a caller gives none."""

import re
import secrets
import unicodedata
from collections.abc import Callable

_LENGTH = 48


def derive(name: str, otherwise: str, is_taken: Callable[[str], bool]) -> str:
    """The name in slug form, with a random end where that slug is taken."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain)[:_LENGTH].strip("-") or otherwise
    return f"{slug}-{secrets.token_hex(4)}" if is_taken(slug) else slug
