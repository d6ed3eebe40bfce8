"""Whose tokens of CI jobs can be exchanged for API keys, and how long these keys last."""

from typing import Annotated, Any

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from menagerie import setting_values
from menagerie.billing_settings import BillingSettings
from menagerie.invoice_settings import InvoiceSettings
from menagerie.monitoring_settings import MonitoringSettings
from menagerie.payment_settings import PaymentSettings
from menagerie.sso_settings import SsoSettings
from menagerie.webhook_settings import WebhookSettings


class WorkloadSettings(
    BillingSettings,
    InvoiceSettings,
    PaymentSettings,
    SsoSettings,
    WebhookSettings,
    MonitoringSettings,
):
    oidc_issuers: Annotated[tuple[str, ...], NoDecode] = Field(
        ("https://token.actions.githubusercontent.com", "https://gitlab.com"),
        description="issuers of OIDC tokens that organizations can trust; empty: none",
    )
    workload_key_ttl_s: int = Field(
        3_600,
        ge=900,
        le=3_600,
        description="how long an API key lasts that a CI job gets for its token",
    )

    @field_validator("oidc_issuers", mode="before")
    @classmethod
    def _issuers_are_urls(cls, given: Any) -> Any:
        for each in (found := setting_values.as_list(given, "https://gitlab.example.com")):
            setting_values.check_issuer(each)
        return found
