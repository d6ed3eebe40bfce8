"""How long letters about accounts are good, and which passwords nobody may choose."""

from pathlib import Path

from pydantic import BaseModel, Field, field_validator


class AccountSettings(BaseModel):
    password_reset_ttl_s: int = Field(
        3_600, ge=60, le=7 * 86_400, description="how long a reset of a password can be used"
    )
    email_change_ttl_s: int = Field(
        86_400, ge=60, le=30 * 86_400, description="how long an email address can be confirmed"
    )
    breached_passwords_file: str = Field(
        "",
        description="file of passwords that nobody may choose, as SHA-1:count in order (Have I Been"
        " Pwned); empty: only those that the service knows",
    )

    @field_validator("breached_passwords_file")
    @classmethod
    def _breaches_are_readable(cls, path: str) -> str:
        if not path:
            return ""
        from control.boundary.breaches import check_file  # noqa: PLC0415 -- needed by whoever has a file

        place = Path(path).expanduser().resolve()
        check_file(place)
        return str(place)
