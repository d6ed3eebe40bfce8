"""Where mail goes, who it is from, and how long what it asks for can be answered."""

from pydantic import Field, field_validator

from menagerie import setting_values
from menagerie.account_settings import AccountSettings


class MailSettings(AccountSettings):
    invite_ttl_s: int = Field(
        604_800, ge=60, le=365 * 86_400, description="how long an invite can be accepted"
    )
    approval_ttl_s: int = Field(
        604_800, ge=60, le=365 * 86_400, description="how long an order can wait for approval"
    )
    mail_url: str = Field(
        "",
        repr=False,
        description="mail server: smtps://user:password@host or smtp://… (STARTTLS); empty: mail is"
        " kept in `mail` in the home, for `menagerie mail`",
    )
    mail_sender: str = Field(
        "Menagerie <menagerie@localhost>", description="sender of mail, with an address"
    )

    @field_validator("mail_url")
    @classmethod
    def _mail_is_a_server(cls, url: str) -> str:
        setting_values.check_mail_url(url)
        return url

    @field_validator("mail_sender")
    @classmethod
    def _sender_is_an_address(cls, sender: str) -> str:
        setting_values.check_mail_sender(sender)
        return sender
