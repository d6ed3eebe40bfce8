"""What the parts are made of: settings in, services and the API's app out."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from control.boundary import check_document, make_boundary
from control.boundary.breaches import BreachedPasswords
from control.boundary.last_used import LastUsed
from control.boundary.rates import make_limiter
from control.cells.http_cells import HttpCells
from control.cells.signing import Signer
from control.delivery.dns_names import DnsNames
from control.delivery.receiver_urls import Reach
from control.mail import mailer_of
from control.policy import issuers, price_lists
from control.policy.agreements import Agreement, template
from control.policy.issuers import Issuer
from control.policy.leak_reports import read_keys
from control.policy.placement import Overcommit
from control.policy.price_lists import packaged
from control.policy.prices import PriceBook
from control.sealing import Sealer
from control.services import Services
from control.settings import ControlSettings
from control.sso.providers import GuardedProviders
from control.sso.scim import errors
from control.sso.scim.boundary import ScimBoundary
from control.workflows.catalogue import cells as cell_workflows
from control.workflows.network.dns import DnsResolver
from control.workflows.roles.issuer_documents import HttpIssuers
from handlers.sso.scim import ROOT, ScimResolver
from menagerie import account_pages, audit_logs, contract, keys
from menagerie.account_pages import AccountPages
from menagerie.errors import SettingsError
from menagerie.mail import folder_in
from menagerie.payment_settings import stripe_of
from menagerie.settings import Settings
from menagerie.sso_settings import SsoSettings
from menagerie.webhook_settings import WebhookSettings
from pages import alone
from specserver import App, Document, Reply
from specserver.shares import Shares
from storage.catalogue import cells
from storage.database import Database
from storage.errors import StateConflict
from storage.instances import placements

PROBLEM_TYPES = "urn:menagerie:problem:"
# Whatever takes more says so in the document (x-max-body-bytes).
BODY_BYTES_MAX = 65_536
# What identity providers push takes few of them; people's requests have threads of their own.
SCIM_THREADS = 4


def build_services(settings: Settings) -> Services:
    """Open what the control plane works with. Nothing is written but missing key files."""
    keys.make_all(settings.root)
    database = Database(settings.database)
    control_settings = ControlSettings(
        base_url=settings.api_url,
        cursor_key=keys.cursor_key(settings.root),
        default_plan=settings.default_plan,
        orgs_per_user=settings.orgs_per_user,
        free_orgs_per_user=settings.free_orgs_per_user,
        session_ttl_s=settings.session_ttl_s,
        mfa_ttl_s=settings.mfa_ttl_s,
        invite_ttl_s=settings.invite_ttl_s,
        approval_ttl_s=settings.approval_ttl_s,
        password_reset_ttl_s=settings.password_reset_ttl_s,
        email_change_ttl_s=settings.email_change_ttl_s,
        oidc_issuers=settings.oidc_issuers,
        workload_key_ttl_s=settings.workload_key_ttl_s,
        reveal_ttl_s=settings.reveal_ttl_s,
        replay_ttl_s=settings.replay_ttl_s,
        stream_ttl_s=settings.stream_ttl_s,
        audit_kept_days=settings.audit_kept_days,
        events_kept_days=settings.events_kept_days,
        **_of_areas(settings),
        idle_pause_s=settings.idle_pause_s,
        rotation_overlap_s=settings.rotation_overlap_s,
        overcommit=Overcommit(
            settings.overcommit_cpu, settings.overcommit_memory, settings.overcommit_storage
        ),
        baa=_agreement(settings.baa_text),
        leak_report_keys=_leak_report_keys(settings.leak_report_keys),
        rate_limits=settings.rate_limits,
        trusted_proxies=settings.trusted_proxies,
        strict=settings.dev,
    )
    # The database's clock counts: a node whose own is an hour off still signs what cells take.
    signer = Signer(keys.signing_key(settings.root), clock=partial(_database_time, database))
    return Services(
        database=database,
        sealer=Sealer(keys.seal_key(settings.root)),
        signer=signer,
        limiter=make_limiter(settings.rate_limit_storage, control_settings, database),
        settings=control_settings,
        cells=HttpCells(signer),
        resolver=DnsResolver(settings.dns_servers),
        issuers=HttpIssuers(),
        providers=_providers(settings),
        mailer=mailer_of(settings.mail_url, settings.mail_sender, folder_in(settings.root)),
        breaches=_breaches(settings),
        audit_logs=audit_logs.places_of(settings),
    )


def _of_areas(settings: Settings) -> dict[str, Any]:
    names = (*WebhookSettings.model_fields, *SsoSettings.model_fields)
    told = {name: getattr(settings, name) for name in names}
    issuer, prices = _issuer(settings.invoice_issuer), _prices(settings)
    stripe = stripe_of(settings, prices.currency)
    return {**told, "prices": prices, "issuer": issuer, "stripe": stripe}


def _prices(settings: Settings) -> PriceBook:
    if settings.money == "off":
        return price_lists.free()
    path = settings.price_list
    return price_lists.read(Path(path).read_text(encoding="utf-8")) if path else packaged()


def _issuer(path: str) -> Issuer | None:
    return issuers.read(Path(path).read_text(encoding="utf-8")) if path else None


def _providers(settings: Settings) -> GuardedProviders:
    reach = Reach(settings.sso_insecure_localhost, settings.sso_allowed_networks)
    return GuardedProviders(reach, partial(DnsNames, settings.dns_servers))


def _breaches(settings: Settings) -> BreachedPasswords:
    path = settings.breached_passwords_file
    return BreachedPasswords(Path(path) if path else None)


def _agreement(path: str) -> Agreement:
    return Agreement.of(Path(path).read_text(encoding="utf-8")) if path else template()


def _leak_report_keys(path: str) -> dict[str, str]:
    return read_keys(Path(path).read_text(encoding="utf-8")) if path else {}


def _database_time(database: Database) -> float:
    with database.read() as db:
        return database.now(db).timestamp()


def build_app(
    settings: Settings,
    services: Services,
    *,
    document: Document | None = None,
    scim_document: Document | None = None,
    on_startup: Sequence[Callable[[], None]] = (),
    on_shutdown: Sequence[Callable[[], None]] = (),
) -> App:
    """The control plane's API over these services. Both documents are read unless given."""
    boundary = make_boundary(services)
    account = AccountPages(settings, boundary.charge_unrouted)
    scim = build_scim(settings, services, boundary.last_used, scim_document)
    app = App(
        document or contract.place(),
        handlers="handlers",
        boundary=boundary,
        state=services,
        validate_responses=settings.dev,
        max_body_bytes=BODY_BYTES_MAX,
        threads=settings.threads,
        on_startup=on_startup,
        on_shutdown=[*on_shutdown, scim.threads.stop],
        problem_type_prefix=PROBLEM_TYPES,
        public_extensions=contract.PUBLIC_EXTENSIONS,
        front_page=_front_page(settings),
        extra_routes={
            account_pages.ROOT: account,
            f"{account_pages.ROOT}/": account,
            ROOT: scim,
            f"{ROOT}/": scim,
        },
        checked=True,  # by `make check`
        shares=Shares(
            boundary.whose,
            threads=settings.threads,
            waiting=settings.caller_waiting,
            long_polls=settings.caller_long_polls,
            live_streams=settings.caller_streams,
            is_heavy=boundary.is_heavy,
        ),
    )
    account.api = app
    check_document(app.document)
    return app


def build_scim(
    settings: Settings, services: Services, last_used: LastUsed, document: Document | None
) -> App:
    """The SCIM server, which has a document, errors and threads of its own."""
    boundary = ScimBoundary(services, last_used)
    return App(
        document or contract.scim_place(),
        handlers=ScimResolver("handlers"),
        boundary=boundary,
        problems=errors.render,
        validate_responses=settings.dev,
        max_body_bytes=BODY_BYTES_MAX,
        threads=SCIM_THREADS,
        serve_docs=False,
        checked=True,  # by `make check`
        shares=Shares(
            boundary.whose,
            threads=SCIM_THREADS,
            waiting=settings.caller_waiting,
            long_polls=settings.caller_long_polls,
            live_streams=settings.caller_streams,
        ),
    )


def _front_page(settings: Settings) -> Reply:
    page, headers = alone.front(settings.api_url)
    return Reply(200, page, {**headers, "Cache-Control": "no-cache"}, alone.HTML)


def register_local_cell(settings: Settings, services: Services) -> None:
    """Tell the control plane where this installation's own cell is, which starts now.

    Raises SettingsError where instances of another placement are on it.
    """
    host = f"cell.{settings.region}.{settings.instance_domain}"
    with services.database.write() as db:
        try:
            placements.check_cell(db, keys.cell_id(settings.root), settings.cell_placement)
        except StateConflict as error:
            raise SettingsError(error.detail) from error
        cell = cells.register(
            db,
            keys.cell_id(settings.root),
            region=settings.region,
            url=f"http+unix://{quote(str(settings.cell_home / 'run' / 'cell.sock'))}",
            public_url=f"https://{host}:{settings.gateway_https_port}",
            instance_domain=settings.instance_domain,
            placement=settings.cell_placement,
        )
        cell_workflows.expect(db, cell)
