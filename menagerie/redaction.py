"""Settings as they may be shown: without what lets anybody in."""

import re
from typing import Any

from menagerie.settings import Settings


def redacted(settings: Settings) -> dict[str, Any]:
    """Every setting as JSON values, the passwords of URLs taken out."""
    shown = settings.model_dump(mode="json")
    for name in ("database_url", "rate_limit_storage", "mail_url"):
        # A Redis has passwords without users; a password may hold an @ that was not encoded.
        url = re.sub(r"(?<=://)([^:/@]*):.*@", r"\1:***@", shown[name])
        shown[name] = re.sub(r"(?<=[?&])(\w*password)=[^&]*", r"\1=***", url)
    for name in ("acme_eab_hmac_key", "installation_backup_passphrase"):
        shown[name] = "***" if shown[name] else ""
    return shown
