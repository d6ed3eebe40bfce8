"""Delivery: to a mail server over TLS, or as files of a maildir where none is set."""

import contextlib
import ipaddress
import mailbox
import smtplib
import ssl
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from control.mail.letters import Letter

SCHEMES: Final = {"smtp": 587, "smtps": 465}
_TIMEOUT_S: Final = 20.0
_FOR_GOOD: Final = 500


class MailFailed(Exception):  # noqa: N818 -- a fact about a letter
    """The letter was not taken, and may be later. `detail` names no password."""

    retry_max_s: Final = 1800.0
    """A server that is asked more often takes the sender for one of spam."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class MailRefused(Exception):  # noqa: N818 -- as above
    """The letter will never be taken."""


class Mailer(Protocol):
    def send(self, letter: Letter, key: str) -> None:
        """Deliver it. The same `key` again is the same letter.

        Raises MailFailed, or MailRefused where trying again cannot help.
        """


class Maildir:
    """A folder that mail programs and `menagerie mail` read."""

    def __init__(self, folder: Path, sender: str) -> None:
        self._folder = folder
        self._sender = sender

    def send(self, letter: Letter, key: str) -> None:
        # Named by the key, which begins with the time: a letter is known without reading others.
        name = f"{key.replace(':', '.')}.menagerie"
        try:
            mailbox.Maildir(self._folder)
            if any((self._folder / "cur").glob(f"{name}*")):
                return
            unfinished = self._folder / "tmp" / name
            unfinished.write_bytes(bytes(message_of(letter, key, self._sender)))
            unfinished.replace(self._folder / "new" / name)
        except OSError as error:
            raise MailFailed(f"the folder for mail cannot be written: {error.strerror}") from error


class SmtpServer:
    """By `smtps://`, or `smtp://` with STARTTLS, which only a server on this machine may lack."""

    def __init__(self, url: str, sender: str) -> None:
        parts = urlsplit(url)
        self._implicit = parts.scheme == "smtps"
        self._host = parts.hostname or ""
        self._port = parts.port or SCHEMES[parts.scheme]
        self._user = unquote(parts.username or "")
        self._password = unquote(parts.password or "")
        self._sender = sender
        self._address = parseaddr(sender)[1]

    def send(self, letter: Letter, key: str) -> None:
        message = message_of(letter, key, self._sender)
        try:
            with contextlib.closing(self._connected()) as server:
                if self._user:
                    server.login(self._user, self._password)
                # To whom is said here: what stands in headers is read by other rules.
                server.send_message(message, self._address, [letter.to])
        except smtplib.SMTPAuthenticationError as error:
            code = error.smtp_code
            raise MailFailed(f"the mail server does not let us in ({code})") from error
        except smtplib.SMTPResponseException as error:
            raise _refusal(error.smtp_code) from error
        except smtplib.SMTPRecipientsRefused as error:
            raise _refusal(min(code for code, _ in error.recipients.values())) from error
        except smtplib.SMTPNotSupportedError as error:
            raise MailRefused("the mail server takes no such address") from error
        except (OSError, smtplib.SMTPException) as error:
            kind = type(error).__name__
            raise MailFailed(f"the mail server cannot be reached, or is no such: {kind}") from error

    def _connected(self) -> smtplib.SMTP:
        tls = ssl.create_default_context()
        if self._implicit:
            return smtplib.SMTP_SSL(self._host, self._port, timeout=_TIMEOUT_S, context=tls)
        server = smtplib.SMTP(self._host, self._port, timeout=_TIMEOUT_S)
        server.ehlo_or_helo_if_needed()
        if server.has_extn("starttls"):
            server.starttls(context=tls)
        elif not _is_here(self._host):
            server.close()
            raise MailFailed("the mail server offers no TLS (STARTTLS)")
        return server


def mailer_of(url: str, sender: str, folder: Path) -> Mailer:
    """By the server of the URL, or into the folder where there is none."""
    return SmtpServer(url, sender) if url else Maildir(folder, sender)


def message_of(letter: Letter, key: str, sender: str) -> EmailMessage:
    """Its id is made of the key, so that a letter sent twice is known as one.

    Raises MailRefused for an address or a subject that no header can have.
    """
    message = EmailMessage()
    domain = parseaddr(sender)[1].rpartition("@")[2]
    try:
        message["From"] = sender
        message["To"] = Address(addr_spec=letter.to)
        message["Subject"] = letter.subject
    except (ValueError, IndexError, HeaderParseError) as error:
        raise MailRefused("the address cannot stand in a letter") from error
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{key.replace(':', '.')}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(letter.text)
    return message


def _refusal(code: int) -> MailFailed | MailRefused:
    """By the code of a mail server: from 500 on it means it for good."""
    kind = MailRefused if code >= _FOR_GOOD else MailFailed
    return kind(f"the mail server refused the letter ({code})")


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
