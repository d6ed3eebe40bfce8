"""Where webhooks may go beyond public addresses, and when endpoints that fail are disabled."""

from typing import Annotated, Any

from pydantic import BaseModel, Field, field_validator
from pydantic_settings import NoDecode

from menagerie import setting_values


class WebhookSettings(BaseModel):
    webhook_insecure_localhost: bool = Field(
        default=False,
        description="development: allow webhooks to http://localhost and 127.0.0.1",
    )
    webhook_allowed_networks: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="CIDRs of private networks that webhooks may be sent to"
    )
    webhook_disabled_after_days: int = Field(
        3, ge=1, le=365, description="disable a webhook endpoint that only failed for so many days"
    )
    webhook_deliveries_kept_days: int = Field(
        30, ge=2, le=36500, description="days that deliveries of webhooks are kept"
    )

    @field_validator("webhook_allowed_networks", mode="before")
    @classmethod
    def _networks_are_networks(cls, given: Any) -> Any:
        for each in (found := setting_values.as_list(given, "10.1.0.0/16")):
            setting_values.check_network(each)
        return found
