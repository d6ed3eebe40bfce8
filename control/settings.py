"""What the control plane's rules can be told: plain figures, read by the composition root."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from control.policy.agreements import Agreement, template
from control.policy.issuers import Issuer
from control.policy.payments import StripeAccount
from control.policy.placement import Overcommit
from control.policy.price_lists import packaged
from control.policy.prices import PriceBook


@dataclass(frozen=True)
class RateLimits:
    """SERVICE's figures. A burst is how many of a minute's requests may come within 5 seconds."""

    per_minute: int = 600
    burst: int = 100
    burst_window_s: int = 5
    unauthenticated_per_minute: int = 60
    authentication_per_minute: int = 10
    # Which identity provider an address signs in with.
    discovery_per_minute: int = 20
    # Logins of programs without a browser: begun, and asked about every five seconds.
    device_per_minute: int = 60
    # In 15 minutes: passwords tried at one account, without a live session of it; passwords tried
    # with one such session; codes tried at one user.
    account_per_quarter_hour: int = 10
    # Beyond that, passwords tried at one account from one address (IPv6: a /56), and from one
    # network (IPv4: a /24, IPv6: a /48).
    account_address_per_quarter_hour: int = 3
    account_network_per_quarter_hour: int = 12
    # One-time URLs to secrets: each person, and each API key; and all keys that one person made in
    # an organization, together.
    reveal_per_minute: int = 5
    reveal_keys_per_minute: int = 20
    # In 15 minutes: changes that leave a record, by a person's sessions; and by all keys that one
    # person made in an organization.
    changes_per_quarter_hour: int = 1000
    # Requests for pages, and for paths and methods that do not exist, per client address and
    # process. A visit of the reference makes six, and an office is one address.
    pages_per_minute: int = 120
    # Requests whose credentials were refused, per client address.
    refused_per_minute: int = 600
    # SCIM requests for each organization. Entra ID wants 25 a second, and sends bursts of more.
    scim_per_minute: int = 1500
    scim_burst: int = 250
    # What counts by address allows a network (IPv4: a /24, IPv6: a /48) so many times as much.
    network_times: int = 12


@dataclass(frozen=True)
class ControlSettings:
    """Times in seconds. `cursor_key` signs cursors: 32 random bytes, the same on every replica."""

    cursor_key: bytes = field(repr=False)
    base_url: str = "http://127.0.0.1:8080"
    default_plan: str = "free"
    orgs_per_user: int = 10
    free_orgs_per_user: int = 2
    session_ttl_s: int = 2_592_000
    mfa_ttl_s: int = 900
    invite_ttl_s: int = 604_800
    approval_ttl_s: int = 604_800
    password_reset_ttl_s: int = 3_600
    email_change_ttl_s: int = 86_400
    # Nobody else's address is ever asked for keys, whatever a tenant or a token names.
    oidc_issuers: tuple[str, ...] = ()
    workload_key_ttl_s: int = 3_600
    reveal_ttl_s: int = 60
    replay_ttl_s: int = 86_400
    stream_ttl_s: float = 3_600
    audit_kept_days: int = 400
    events_kept_days: int = 90
    webhook_insecure_localhost: bool = False
    # CIDRs that webhooks may be sent to although they are not public.
    webhook_allowed_networks: tuple[str, ...] = ()
    webhook_disabled_after_days: int = 3
    webhook_deliveries_kept_days: int = 30
    sso_insecure_localhost: bool = False
    # CIDRs that identity providers may be in although they are not public.
    sso_allowed_networks: tuple[str, ...] = ()
    idle_pause_s: int = 900
    rotation_overlap_s: int = 86_400
    rate_limits: bool = True
    overcommit: Overcommit = field(default_factory=Overcommit)
    rates: RateLimits = field(default_factory=RateLimits)
    baa: Agreement = field(default_factory=template)
    prices: PriceBook = field(default_factory=packaged)
    # Without one, no invoices are made.
    issuer: Issuer | None = None
    # Without one, no invoice is collected, and nobody charged.
    stripe: StripeAccount | None = None
    # Public keys (PEM) of those who may report leaked API keys, by their identifiers.
    leak_report_keys: Mapping[str, str] = field(default_factory=dict)
    # CIDRs whose X-Forwarded-For is believed.
    trusted_proxies: tuple[str, ...] = ()
    # Some tests count entries of the log.
    audit_refusals: bool = True
    # Tests and --dev: a handler that forgets an audit, or publishes what it may not, raises.
    strict: bool = False

    def __post_init__(self) -> None:
        if len(self.cursor_key) < 32:  # noqa: PLR2004 -- the bytes of a SHA-256 key
            raise ValueError(f"cursor_key needs 32 random bytes, has {len(self.cursor_key)}")
