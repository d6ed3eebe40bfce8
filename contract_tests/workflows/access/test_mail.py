"""Letters reach a real mail server, or the folder of mail, once; they wait while it is away."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope

from contract_tests.clients.servers import Authority
from contract_tests.kept_port import KeptPort
from contract_tests.workflows import posted
from contract_tests.workflows.stage import Stage
from control.boundary import identity
from control.mail import Letter, Maildir, MailFailed, MailRefused, SmtpServer, delivery, mailer_of
from control.mail.letters import approval_decided, approval_request, invitation
from menagerie import logs
from menagerie.errors import SettingsError
from menagerie.mail import read
from menagerie.redaction import redacted
from menagerie.settings import load
from storage.access.invites import Invite
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


def test_it_signs_in_where_the_url_says_as_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    # After a refusal the next way to sign in is tried, and this server does not answer that.
    monkeypatch.setattr(delivery, "_TIMEOUT_S", 0.5)
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
    with refusing as place, pytest.raises(MailRefused, match=r"\(552\)"):
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
    """A mailer that fails so many times."""

    def __init__(self, error: Exception | None = None, times: int = 2) -> None:
        self.keys: list[str] = []
        self._error = error or MailFailed("the mail server is away")
        self._times = times

    def send(self, _letter: Letter, key: str) -> None:
        self.keys.append(key)
        if len(self.keys) <= self._times:
            raise self._error


def test_a_letter_waits_for_the_server_and_is_sealed_meanwhile(stage: Stage) -> None:
    mailer = Failing()
    stage.services = replace(stage.services, mailer=mailer)
    posted.letter(stage, LETTER)
    with stage.database.read() as db:
        (work,) = db.query(Work).all()
        assert "mi_token" not in str(work.args)
        assert "ada@example.com" not in str(work.args)
    stage.settle()
    assert len(mailer.keys) == 3
    assert len(set(mailer.keys)) == 1


def test_one_that_is_refused_for_good_is_not_tried_again(stage: Stage) -> None:
    mailer = Failing(MailRefused("the mail server refused the letter (550)"))
    stage.services = replace(stage.services, mailer=mailer)
    posted.letter(stage, LETTER)
    stage.settle()
    assert len(mailer.keys) == 1


def test_a_server_that_is_away_for_a_day_is_not_asked_often(stage: Stage) -> None:
    mailer = Failing(times=10_000)
    stage.services = replace(stage.services, mailer=mailer)
    posted.letter(stage, LETTER)
    stage.settle()
    assert 20 < len(mailer.keys) < 100


def test_an_invite_that_was_revoked_meanwhile_needs_no_letter(stage: Stage) -> None:
    mailer = Failing()
    stage.services = replace(stage.services, mailer=mailer)
    invite = posted.letter(stage, LETTER)
    with stage.database.write() as db:
        db.get_one(Invite, invite.id).revoke(stage.database.now(db))
    stage.settle()
    assert mailer.keys == []


def test_names_in_letters_about_orders_stay_in_their_quotes() -> None:
    name = 'Sales" <https://evil.example/> \n\nPay now: https://evil.example'
    asked = {"org": name, "order": name, "approval_id": "apr_1"}
    request = approval_request(
        **asked, to="a@b.c", by=name, team=name, cost="", reasons=[name], until="", base_url=""
    )
    decided = approval_decided(**asked, to="a@b.c", status="denied", reason=name, then="")
    for letter in (request, decided):
        told = letter.subject + letter.text
        assert "https://" not in told
        assert "\nPay now" not in told
        assert 'Sales"' not in told


@pytest.mark.parametrize(
    "address", ["=?utf-8?q?thief=40evil.com=3B?=ceo@corp.com", "a\u2028b@example.com", "a,b@c.d"]
)
def test_a_letter_goes_to_its_address_alone_or_nowhere(address: str) -> None:
    received = Received()
    with serving(received) as place:
        server = SmtpServer(f"smtp://{place}", SENDER)
        with suppress(MailRefused, MailFailed):
            server.send(replace(LETTER, to=address), "a:send")
    assert all(envelope.rcpt_tos == [address] for envelope in received.envelopes)


def test_names_stay_in_their_quotes() -> None:
    name = 'Support" <https://evil.example/login> "\u202e\x1b'
    asked = {"to": "a@b.c", "role": "member", "token": "mi_", "until": "", "base_url": ""}
    letter = invitation(by=name, org=name, **asked)
    assert letter.text.splitlines()[0].count('"') == 4
    assert "://evil" not in letter.text + letter.subject
    assert (letter.text + letter.subject).replace("\n", "").isprintable()


def test_a_foreign_letter_in_the_folder_is_shown_as_far_as_it_is_text(tmp_path: Path) -> None:
    folder = tmp_path / "mail"
    Maildir(folder, SENDER).send(LETTER, "one:send")
    foreign = EmailMessage()
    foreign["To"] = "x@y.z"
    foreign.add_attachment(b"bytes", maintype="application", subtype="octet-stream")
    (folder / "new" / "2").write_bytes(bytes(foreign))
    assert len(read(folder)) == 2


@pytest.mark.parametrize(
    "path",
    ["/v1/invites/{}/accept", "/v1/invites/{}%2faccept", "/v1/orgs/{}", "/v1/invites/{}/accept/"],
)
def test_no_token_of_an_invite_is_in_the_log(path: str) -> None:
    token = identity.new_invite_token().secret
    for written in (token, token.replace("_", "%5F"), f"%6D{token[1:]}"):
        if "invites" not in path and written != token:
            continue
        assert token[8:] not in logs.redact(path.format(written))
    assert token[8:] not in logs.redact(f"refused {token}")


def test_the_password_of_the_mail_server_is_not_shown(tmp_path: Path) -> None:
    settings = load(home=tmp_path, mail_url="smtps://ada:hunter2@mail.example.com")
    assert "hunter2" not in str(redacted(settings))
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mail_url", "smtps://user:hunter2/ss@mail.example.com"),
        ("mail_url", "smtp://user:hunter2?x@mail.example.com"),
        ("mail_url", "smtp://mail.example.com\r\nx"),
        ("mail_url", "https://mail.example.com"),
        ("mail_sender", "a@b.c, c@d.e"),
        ("mail_sender", "=?utf-8?q?x=0a?= <a@b.c>"),
        ("mail_sender", "nobody"),
    ],
)
def test_settings_that_no_letter_could_be_sent_by_are_refused(
    tmp_path: Path, name: str, value: str
) -> None:
    with pytest.raises(SettingsError, match=f"{name}.*must be") as refused:
        load(home=tmp_path, **{name: value})
    assert "hunter2" not in str(refused.value)
