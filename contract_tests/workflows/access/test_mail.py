"""Letters reach a real mail server, or the folder of mail, once; they wait while it is away."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope

from contract_tests.clients.servers import Authority
from contract_tests.kept_port import KeptPort
from contract_tests.workflows.stage import Stage
from control.mail import Letter, Maildir, MailFailed, SmtpServer, delivery, mailer_of
from control.workflows.access import mail
from menagerie.mail import read
from storage.work import Work

SENDER = "Menagerie <databases@example.org>"
LETTER = Letter("ada@example.com", 'About "Zoë"', "First line.\n\nmi_token\n.\nLast line.\n")


class Received:
    """A mail server's handler: keeps what it takes, and may refuse."""

    def __init__(self, refusal: str | None = None) -> None:
        self.envelopes: list[Envelope] = []
        self._refusal = refusal

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:  # noqa: N802 -- aiosmtpd's name
        if self._refusal:
            return self._refusal
        self.envelopes.append(envelope)
        return "250 OK"


@contextmanager
def serving(handler: Received, **options: Any) -> Iterator[str]:
    """Host and port of a mail server on loopback."""
    with KeptPort() as port:
        controller = Controller(handler, hostname="127.0.0.1", port=port.number, **options)
        controller.start()
        try:
            yield f"127.0.0.1:{port.number}"
        finally:
            controller.stop()


def test_a_mail_server_gets_the_letter_whole() -> None:
    received = Received()
    with serving(received) as place:
        SmtpServer(f"smtp://{place}", SENDER).send(LETTER, "op_1:send")
    (envelope,) = received.envelopes
    assert envelope.rcpt_tos == ["ada@example.com"]
    assert envelope.mail_from == "databases@example.org"
    content = envelope.content or b""
    text = content.decode() if isinstance(content, bytes) else content
    assert "Message-ID: <op_1.send@example.org>" in text
    assert "mi_token\r\n..\r\nLast line." in text or "mi_token\r\n.\r\nLast line." in text


def test_it_signs_in_where_the_url_says_as_whom() -> None:
    seen: list[Any] = []

    def authenticate(_server: Any, _session: Any, _envelope: Any, _how: str, who: Any) -> Any:
        seen.append((who.login, who.password))
        return AuthResult(success=who.password == b"p@ss")

    received = Received()
    options = {"authenticator": authenticate, "auth_require_tls": False}
    with serving(received, **options) as place:
        SmtpServer(f"smtp://ada:p%40ss@{place}", SENDER).send(LETTER, "a:send")
        with pytest.raises(MailFailed, match="the mail server") as failed:
            SmtpServer(f"smtp://ada:hunter2@{place}", SENDER).send(LETTER, "b:send")
    assert len(received.envelopes) == 1
    assert "hunter2" not in str(failed.value)


def test_what_the_server_refuses_fails_with_its_code() -> None:
    refusing = serving(Received("552 too large"))
    with refusing as place, pytest.raises(MailFailed, match=r"\(552\)"):
        SmtpServer(f"smtp://{place}", SENDER).send(LETTER, "a:send")


def test_a_server_that_is_not_there_fails() -> None:
    with serving(Received()) as place:
        pass
    with pytest.raises(MailFailed, match="cannot be reached"):
        SmtpServer(f"smtp://{place}", SENDER).send(LETTER, "a:send")


def test_only_a_server_of_this_machine_may_lack_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_is_here", lambda _host: False)
    received = Received()
    with serving(received) as place, pytest.raises(MailFailed, match="STARTTLS"):
        SmtpServer(f"smtp://{place}", SENDER).send(LETTER, "a:send")
    assert received.envelopes == []


def test_a_certificate_that_nobody_vouches_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, "localhost")
    received = Received()
    with serving(received, tls_context=authority.context) as place:
        server = SmtpServer(f"smtp://localhost:{place.rpartition(':')[2]}", SENDER)
        with pytest.raises(MailFailed, match="SSLCertVerificationError"):
            server.send(LETTER, "a:send")
        assert received.envelopes == []
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
        server.send(LETTER, "a:send")
    assert len(received.envelopes) == 1


def test_in_the_folder_a_letter_is_once_and_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "mail"
    box = mailer_of("", SENDER, folder)
    assert isinstance(box, Maildir)
    assert read(folder) == []
    for key in ("one:send", "one:send", "two:send"):
        box.send(LETTER, key)
    found = read(folder)
    assert len(found) == 2
    assert "To: ada@example.com" in found[0]
    assert 'Subject: About "Zoë"' in found[0]
    assert "mi_token" in found[0]
    assert not list((folder / "tmp").iterdir())
    read_by_a_program = folder / "new" / "one.send.menagerie"
    read_by_a_program.rename(folder / "cur" / f"{read_by_a_program.name}:2,S")
    box.send(LETTER, "one:send")
    assert len(read(folder)) == 2


def test_what_a_terminal_would_obey_is_not_shown(tmp_path: Path) -> None:
    Maildir(tmp_path / "mail", SENDER).send(replace(LETTER, text="a\x1b[2Jb\n"), "one:send")
    assert "\x1b" not in read(tmp_path / "mail")[0]


def test_a_folder_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "mail").write_text("a file")
    with pytest.raises(MailFailed, match="cannot be written"):
        Maildir(tmp_path / "mail", SENDER).send(LETTER, "one:send")


class Failing:
    """A mailer that takes the third try."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def send(self, _letter: Letter, key: str) -> None:
        self.keys.append(key)
        if len(self.keys) < 3:
            raise MailFailed("the mail server is away")


def test_a_letter_waits_for_the_server_and_is_sealed_meanwhile(stage: Stage) -> None:
    mailer = Failing()
    stage.services = replace(stage.services, mailer=mailer)
    with stage.database.write() as db:
        mail.post(db, stage.services.sealer, LETTER, stage.org_id)
    with stage.database.read() as db:
        (work,) = db.query(Work).all()
        assert "mi_token" not in str(work.args)
        assert "ada@example.com" not in str(work.args)
    stage.settle()
    assert len(mailer.keys) == 3
    assert len(set(mailer.keys)) == 1
