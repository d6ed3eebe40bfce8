"""Where the operator's metrics are served, and where traces are sent; both are off by default."""

from pydantic import BaseModel, Field, field_validator

from menagerie import setting_values


class MonitoringSettings(BaseModel):
    metrics_port: int = Field(
        0, ge=0, le=65535, description="port of the operator's metrics; 0: they are not served"
    )
    metrics_listen: str = Field(
        "127.0.0.1", description="address of that port; anybody who reaches it can read them"
    )
    otel_endpoint: str = Field(
        "",
        description="URL of an OpenTelemetry collector (OTLP over HTTP), such as"
        " http://127.0.0.1:4318; empty: no traces",
    )

    @field_validator("otel_endpoint")
    @classmethod
    def _endpoint_is_url(cls, url: str) -> str:
        setting_values.check_base_url(url)
        return url
