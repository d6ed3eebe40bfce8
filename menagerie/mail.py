"""The letters in the folder of this installation, for people without a mail server."""

import email
import mailbox
from email import policy
from email.message import EmailMessage
from pathlib import Path


def folder_in(home: Path) -> Path:
    return home / "mail"


def read(folder: Path) -> list[str]:
    """Each as text with its headers, oldest first."""
    if not folder.is_dir():
        return []
    box = mailbox.Maildir(folder, create=False)
    # Names of files begin with the time at which the letter was posted.
    return [_text(box.get_bytes(name)) for name in sorted(box.keys())]


def _text(raw: bytes) -> str:
    message: EmailMessage = email.message_from_bytes(raw, policy=policy.default)
    headers = [f"{name}: {message[name]}" for name in ("Date", "From", "To", "Subject")]
    body = message.get_body(("plain", "html"))
    text = str(body.get_content()) if body is not None else ""
    lines = [*headers, "", *text.rstrip().splitlines()]
    # Names in a letter are of tenants: what a terminal would obey is not shown.
    return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines)
