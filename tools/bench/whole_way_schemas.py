"""Owns the document's schemas as the twin of the benchmark of the whole way wants them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Window(BaseModel):
    model_config = ConfigDict(extra="forbid")
    day: Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
    start: Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class InstanceCreate(BaseModel):
    """The document's schema of the same name, as FastAPI wants it."""

    model_config = ConfigDict(extra="forbid")
    engine: Literal["duckdb", "mariadb", "mysql", "postgres", "redis", "timescaledb", "valkey"]
    size: Annotated[str, Field(pattern="^[a-z]{1,2}[0-9]{1,2}$")]
    engine_version: Annotated[str | None, Field(max_length=20)] = None
    region: Annotated[str | None, Field(max_length=40)] = None
    name: Annotated[str | None, Field(max_length=63, pattern="^[a-z][a-z0-9-]*$")] = None
    placement: Literal["shared", "secure"] = "shared"
    storage_bytes: Annotated[int | None, Field(ge=1_000_000_000)] = None
    maintenance_window: Window | None = None


class InstanceOut(BaseModel):
    """The document's `Instance`."""

    model_config = ConfigDict(from_attributes=True)
    id: str
    org_id: str
    project_id: str | None
    team_id: str
    name: str
    engine: str
    engine_version: str
    size: str
    region: str
    placement: str
    storage_bytes: int
    maintenance_window: dict[str, Any] | None
    status: str
    status_reason: str | None
    desired_status: str
    paused_by: str | None
    branch_of: str | None
    host: str
    port: int
    requested_by: str | None
    created_at: datetime
    updated_at: datetime
    ready_at: datetime | None
    purge_after: datetime | None


class InstancePage(BaseModel):
    items: list[InstanceOut]
    next_cursor: str | None


class OneTimeUrl(BaseModel):
    url: str
    method: str
    expires_at: datetime
