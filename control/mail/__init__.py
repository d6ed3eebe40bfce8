"""Mail: letters to people, by a mail server or into a folder of this machine."""

from control.mail.delivery import (
    Maildir,
    Mailer,
    MailFailed,
    MailRefused,
    SmtpServer,
    mailer_of,
)
from control.mail.letters import Letter

__all__ = ["Letter", "MailFailed", "MailRefused", "Maildir", "Mailer", "SmtpServer", "mailer_of"]
