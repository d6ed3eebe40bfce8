"""Settings as they may be shown: without what lets anybody in."""

import re
from typing import Any

from menagerie.settings import Settings


def redacted(settings: Settings) -> dict[str, Any]:
    """Every setting as JSON values, the passwords of URLs taken out."""
    shown = settings.model_dump(mode="json")
    for name, value in shown.items():
        # Whatever is a URL, so that no new setting is forgotten.
        if isinstance(value, str) and "://" in value:
            # A Redis has passwords without users; one may hold an @ that was not encoded.
            url = re.sub(r"(?<=://)([^:/@]*):.*@", r"\1:***@", value)
            shown[name] = re.sub(r"(?<=[?&])(\w*password)=[^&]*", r"\1=***", url)
    for name in ("acme_eab_hmac_key", "installation_backup_passphrase"):
        shown[name] = "***" if shown[name] else ""
    return shown
