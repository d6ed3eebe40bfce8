"""Every setting of the service, typed, with its default and what it means.

Settings come from, strongest first: the command line, `MENAGERIE_*` in the environment, the TOML
file named by `MENAGERIE_CONFIG` (or `config.toml` in the home), the defaults below.
docs/configuration.md lists them, and a test holds that list against this module.
"""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from menagerie import compliance_settings, mail_settings, names, setting_values, workload_settings
from menagerie.errors import SettingsError

DEFAULT_HOME = Path("~/.menagerie")
_LONGEST_S = 365 * 86_400  # a cell allows no more, and dates end some thousand years on
GATEWAY_PROCESSES = 4  # where nothing else is said; each passes on tens of thousands of queries/s
GATEWAY_PORTS = ("https", "postgres", "mysql", "resp", "mongodb", "clickhouse_https", "clickhouse")


class Settings(
    compliance_settings.ComplianceSettings,
    mail_settings.MailSettings,
    workload_settings.WorkloadSettings,
    BaseSettings,
):
    """What is in force for this process. Times in seconds, ports as integers (0: any free one)."""

    # A value that is refused may hold a password; the error names the setting.
    model_config = SettingsConfigDict(
        env_prefix="MENAGERIE_", extra="forbid", frozen=True, hide_input_in_errors=True
    )

    home: Path = Field(DEFAULT_HOME, description="folder for all data of this installation")
    database_url: str = Field(
        "", description="SQLAlchemy URL; empty: SQLite in the home. PostgreSQL: postgresql://…"
    )
    log_format: Literal["text", "json"] = Field("text", description="log format: text or json")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest severity that is logged"
    )
    dev: bool = Field(
        default=False,
        description="check every response, audit entry and event against the OpenAPI document",
    )

    host: str = Field("127.0.0.1", description="address the API listens on")
    port: int = Field(8080, ge=0, le=65535, description="port the API listens on")
    base_url: str = Field("", description="URL of the API for clients; empty: http://host:port")
    processes: int = Field(1, ge=1, description="processes of `menagerie api`, on PostgreSQL")
    threads: int = Field(16, ge=1, description="threads that run handlers, per API process")
    worker_threads: int = Field(8, ge=1, description="workflows run at once, per worker")
    caller_waiting: int = Field(
        128, ge=1, description="requests of one organization or caller that can wait for a thread"
    )
    caller_long_polls: int = Field(
        100, ge=1, description="long polls (wait_for) that one organization or caller can have open"
    )
    caller_streams: int = Field(
        50, ge=1, description="live streams that one organization or caller can have open"
    )
    address_connections: int = Field(
        200,
        ge=1,
        description="connections an address can have to an API process (except trusted proxies)",
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="CIDRs of proxies whose X-Forwarded-For is trusted"
    )

    gateway_listen: str = Field("127.0.0.1", description="address the gateway listens on")
    gateway_https_port: int = Field(
        8443, ge=0, le=65535, description="gateway port for HTTP engines (443 in production)"
    )
    gateway_postgres_port: int = Field(
        15432, ge=0, le=65535, description="gateway port for PostgreSQL (5432 in production)"
    )
    gateway_mysql_port: int = Field(
        13306, ge=0, le=65535, description="gateway port for MySQL and MariaDB (3306 in production)"
    )
    gateway_resp_port: int = Field(
        16379, ge=0, le=65535, description="gateway port for Redis and Valkey (6379 in production)"
    )
    gateway_mongodb_port: int = Field(
        17017, ge=0, le=65535, description="gateway port for MongoDB (27017 in production)"
    )
    gateway_clickhouse_https_port: int = Field(
        18443, ge=0, le=65535, description="gateway port for ClickHouse HTTPS (8443 in production)"
    )
    gateway_clickhouse_port: int = Field(
        19440, ge=0, le=65535, description="native ClickHouse gateway port (9440 in production)"
    )
    gateway_mysql_version: str = Field(
        "5.5.5-10.11.0-MariaDB",
        pattern="^[0-9][!-~]{0,60}$",
        description="server version announced to MySQL clients; for MySQL only, 8.0.30 for example",
    )
    gateway_workers: int = Field(
        0, ge=0, description="gateway processes; 0: one per CPU, at most 4"
    )
    gateway_proxy_cidrs: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="CIDRs of load balancers that put a PROXY v2 header before each connection"
    )
    region: str = Field("local", pattern="^[a-z][a-z0-9-]{0,30}$", description="region of the cell")
    instance_domain: str = Field("localhost", description="domain of the instance hosts")

    owner_email: str = Field(
        "owner@localhost.localdomain", description="first start: the owner's email address"
    )
    first_org_name: str = Field("Home", description="first start: name of the organization")
    first_org_plan: Literal["free", "solo", "team", "enterprise"] = Field(
        "enterprise", description="first start: plan of that organization"
    )
    default_plan: Literal["free", "solo", "team", "enterprise"] = Field(
        "free", description="plan of organizations created through the API"
    )
    orgs_per_user: int = Field(10, ge=1, description="organizations that one user can own")
    free_orgs_per_user: int = Field(
        2, ge=1, description="organizations on the free plan that one user can own"
    )

    session_ttl_s: int = Field(
        2_592_000, ge=60, le=_LONGEST_S, description="how long a user session lasts"
    )
    mfa_ttl_s: int = Field(
        900, ge=1, le=_LONGEST_S, description="how long a second factor is valid in a session"
    )
    reveal_ttl_s: int = Field(60, ge=1, le=600, description="how long a one-time URL is valid")
    replay_ttl_s: int = Field(
        86_400,
        ge=86_400,
        le=_LONGEST_S,
        description="how long an Idempotency-Key is kept; at least a day",
    )
    stream_ttl_s: int = Field(
        3_600,
        ge=10,
        le=_LONGEST_S,
        description="when a live stream ends; the client reconnects and continues",
    )
    audit_kept_days: int = Field(
        400, ge=30, le=36500, description="days that the audit log and lists of changes are kept"
    )
    events_kept_days: int = Field(90, ge=7, le=36500, description="days that events are kept")
    idle_pause_s: int = Field(
        900,
        ge=1,
        le=_LONGEST_S,
        description="free plan: pause an instance after this long without connections",
    )
    overcommit_cpu: float = Field(
        8.0, gt=0, le=1000, description="factor by which a machine's CPUs can be overcommitted"
    )
    overcommit_memory: float = Field(
        1.0, gt=0, le=100, description="factor by which a machine's memory can be overcommitted"
    )
    overcommit_storage: float = Field(
        2.0, gt=0, le=1000, description="factor by which a machine's disk can be overcommitted"
    )
    rotation_overlap_s: int = Field(
        86_400,
        ge=0,
        le=_LONGEST_S,
        description="how long former credentials stay valid after a rotation without `overlap_s`",
    )
    dns_servers: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="DNS servers for custom domains (address[:port]); empty: the system's",
    )
    acme_directory: str = Field(
        "",
        pattern="^(https://.+)?$",
        description="directory URL of the ACME server for custom domains; empty: the local CA",
    )
    acme_contact: str = Field("", description="email address of the ACME account; optional")
    acme_terms_agreed: bool = Field(
        default=False, description="agree to the ACME server's terms of service, if it has any"
    )
    acme_ca_file: str = Field(
        "", description="PEM file of CAs trusted for the ACME server's TLS; empty: the system's"
    )
    acme_eab_key_id: str = Field(
        "", description="key identifier of the external account binding; empty: none"
    )
    acme_eab_hmac_key: str = Field(
        "", description="key of the external account binding (base64url)"
    )
    backup_store_url: str = Field(
        "",
        pattern="^((file:///|s3://|gs://|az://).+)?$",
        description="URL of the store of backups; empty: `backups` in the home",
    )
    backup_copy_store_url: str = Field(
        "",
        pattern="^((file:///|s3://|gs://|az://).+)?$",
        description="URL of a second store that backups can be copied to; empty: none",
    )
    backup_recovery_recipient: str = Field(
        "",
        description="age recipient for the keys of backups; empty: one whose key is in the home",
    )
    backup_verify_bytes_max: int = Field(
        10**10, ge=0, description="data up to this size is restored to verify it; else checksums"
    )
    backup_increments_max: int = Field(
        7, ge=0, le=100, description="incremental backups in a row before a full one; 0: none"
    )
    backup_bytes_per_s: int = Field(
        0, ge=0, multiple_of=10**6, description="how fast a cell uses the store; 0: no limit"
    )
    installation_backup_every_s: int = Field(
        300, ge=30, le=_LONGEST_S, description="how often `serve` backs the installation up"
    )
    installation_backup_passphrase_file: str = Field(
        "", description="file with the passphrase of these backups; empty: none are made"
    )
    installation_backup_passphrase: str = Field(
        "", description="that passphrase itself, for an environment that has no such file"
    )
    migration_networks: tuple[str, ...] = Field((), description="private networks of migrations")
    rate_limits: bool = Field(default=True, description="enforce the published rate limits")
    rate_limit_storage: str = Field(
        "memory", description="where requests are counted: memory, database, or a redis:// URL"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 -- pydantic-settings names the parameters
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 -- as above
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 -- as above
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings)

    @model_validator(mode="after")
    def _ports_differ(self) -> "Settings":
        """Only HTTPS kinds can share a port: of any other, the first byte tells too little."""
        taken: dict[int, str] = {}
        for protocol, port in self.gateway_ports.items():
            other = taken.setdefault(port, protocol)
            if port and protocol != other and (other, protocol) != ("https", "clickhouse_https"):
                raise ValueError(f"gateway_{protocol}_port: gateway_{other}_port is already {port}")
        return self

    @field_validator("rate_limit_storage")
    @classmethod
    def _storage_is_one(cls, where: str) -> str:
        setting_values.check_rate_storage(where)
        return where

    @model_validator(mode="after")
    def _stores_differ(self) -> "Settings":
        setting_values.check_copy_store(self.backup_copy_store_url, self.backup_store)
        return self

    @field_validator("trusted_proxies", "gateway_proxy_cidrs", mode="before")
    @classmethod
    def _proxies_are_networks(cls, given: Any) -> Any:
        for each in (found := setting_values.as_list(given, "10.0.0.0/8")):
            setting_values.check_network(each)
        return found

    @field_validator("dns_servers", mode="before")
    @classmethod
    def _servers_are_addresses(cls, given: Any) -> Any:
        for each in (found := setting_values.as_list(given, "9.9.9.9")):
            setting_values.check_name_server(each)
        return found

    @field_validator("base_url")
    @classmethod
    def _base_is_url(cls, url: str) -> str:
        setting_values.check_base_url(url)
        return url

    @field_validator("backup_recovery_recipient")
    @classmethod
    def _recipient_is_one(cls, recipient: str) -> str:
        setting_values.check_recipient(recipient)
        return recipient

    @field_validator("database_url")
    @classmethod
    def _database_is_one(cls, url: str) -> str:
        setting_values.check_database_url(url)
        return url

    @field_validator("acme_ca_file", "installation_backup_passphrase_file")
    @classmethod
    def _file_is_there(cls, path: str) -> str:
        # Said at the start, and not by a certificate or a backup that never comes.
        if path and not Path(path).expanduser().is_file():
            raise ValueError(f"{path} is not a file")
        return str(Path(path).expanduser().resolve()) if path else ""

    @property
    def root(self) -> Path:
        return self.home.expanduser().resolve()

    @property
    def backup_store(self) -> str:
        return self.backup_store_url or (self.root / "backups").as_uri()

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite:///{self.root / 'menagerie.db'}"

    @property
    def on_sqlite(self) -> bool:
        return self.database.startswith("sqlite")

    @property
    def api_url(self) -> str:
        # Every address is none that a client could ask; what surely works is this machine's own.
        return self.base_url or self.api_url_local

    @property
    def api_url_local(self) -> str:
        """Where the API is reached from this machine, whatever `base_url` says."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)  # noqa: S104 -- compared
        return f"http://{host}:{self.port}"

    @property
    def gateway_ports(self) -> dict[str, int]:
        return {protocol: getattr(self, f"gateway_{protocol}_port") for protocol in GATEWAY_PORTS}

    @property
    def gateway_processes(self) -> int:
        return self.gateway_workers or min(GATEWAY_PROCESSES, len(os.sched_getaffinity(0)))

    @property
    def cell_home(self) -> Path:
        return self.root / "cell"


def load(**options: Any) -> Settings:
    """Read the settings; `options` are those given on the command line (None: not given).

    Raises SettingsError with one line for each setting that cannot be used.
    """
    given = {name: value for name, value in options.items() if value is not None}
    home = Path(given.get("home") or os.environ.get("MENAGERIE_HOME") or DEFAULT_HOME)
    named = os.environ.get("MENAGERIE_CONFIG")
    source = Path(named) if named else home.expanduser() / "config.toml"
    if named and not source.exists():
        raise SettingsError(f"MENAGERIE_CONFIG points to {source}, which does not exist")
    if not named:
        from menagerie.ownership import require_ours  # noqa: PLC0415 -- which raises what is above

        require_ours(source)
    in_file = _read(source) if os.path.exists(source) else {}  # noqa: PTH110 -- False where it is hidden
    fields = Settings.model_fields
    if unknown := names.unknown_keys(in_file, fields):
        raise SettingsError(f"{source}: {unknown}")
    if unknown := names.unknown_variables(os.environ, fields):
        raise SettingsError(unknown)
    from_environment = {
        name.removeprefix("MENAGERIE_").lower()
        for name in os.environ
        if name.startswith("MENAGERIE_")
    }
    weakest = {name: value for name, value in in_file.items() if name not in from_environment}
    try:
        return Settings(**{**weakest, **given})
    except ValidationError as error:
        told = setting_values.refusals(error)
        raise SettingsError(f"{told} (see docs/configuration.md)") from error


def _read(source: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(source.read_text())
    except (tomllib.TOMLDecodeError, OSError) as error:
        raise SettingsError(f"{source}: {error}") from error


def sources(**options: Any) -> dict[str, str]:
    """Where each setting that is not the default comes from: command line, environment or file."""
    home = Path(options.get("home") or os.environ.get("MENAGERIE_HOME") or DEFAULT_HOME)
    source = Path(os.environ.get("MENAGERIE_CONFIG") or home.expanduser() / "config.toml")
    found = dict.fromkeys(_read(source), str(source)) if source.exists() else {}
    for name in Settings.model_fields:
        variable = f"MENAGERIE_{name.upper()}"
        if variable in os.environ:
            found[name] = variable
        if options.get(name) is not None:
            found[name] = f"--{name.replace('_', '-')}"
    return found
