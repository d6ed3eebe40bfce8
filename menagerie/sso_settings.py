"""Where the identity providers of organizations may be, beyond public addresses."""

from typing import Annotated, Any

from pydantic import BaseModel, Field, field_validator
from pydantic_settings import NoDecode

from menagerie import setting_values


class SsoSettings(BaseModel):
    sso_insecure_localhost: bool = Field(
        default=False,
        description="development: allow identity providers at http://localhost and 127.0.0.1",
    )
    sso_allowed_networks: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="CIDRs of private networks that identity providers may be in"
    )

    @field_validator("sso_allowed_networks", mode="before")
    @classmethod
    def _networks_are_networks(cls, given: Any) -> Any:
        for each in (found := setting_values.as_list(given, "10.1.0.0/16")):
            setting_values.check_network(each)
        return found
