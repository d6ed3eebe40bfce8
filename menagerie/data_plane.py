"""The parts that run where the data is: a cell and its gateway."""

from menagerie import keys, open_files
from menagerie.errors import SettingsError
from menagerie.monitoring import activation
from menagerie.processes import loaded, started_by_serve
from menagerie.settings import Settings


def run_cell(settings: Settings) -> None:
    """Run the cell until SIGTERM."""
    # Each part loads its own, and not what the other needs.
    import cell.main  # noqa: PLC0415
    from cell.settings import CellSettings  # noqa: PLC0415

    open_files.raise_limit()
    end_tracing = activation.trace(settings, "cell")
    loaded()
    if not settings.backup_store_url:
        (settings.root / "backups").mkdir(mode=0o700, exist_ok=True)
    cell.main.run(
        CellSettings(
            home=settings.cell_home,
            cell_id=keys.cell_id(settings.root),
            region=settings.region,
            instance_domain=settings.instance_domain,
            ports=settings.gateway_ports,
            control_public_key=keys.public_key(settings.root),
            acme_directory=settings.acme_directory,
            acme_contact=settings.acme_contact,
            acme_terms_agreed=settings.acme_terms_agreed,
            acme_ca_file=settings.acme_ca_file,
            acme_eab_key_id=settings.acme_eab_key_id,
            acme_eab_hmac_key=settings.acme_eab_hmac_key,
            backup_store_url=settings.backup_store,
            backup_copy_store_url=settings.backup_copy_store_url,
            backup_recovery_recipient=settings.backup_recovery_recipient,
            backup_verify_bytes_max=settings.backup_verify_bytes_max,
            backup_increments_max=settings.backup_increments_max,
            backup_bytes_per_s=settings.backup_bytes_per_s,
            migration_networks=settings.migration_networks,
        )
    )
    if end_tracing is not None:
        end_tracing()


def run_gateway(settings: Settings) -> None:
    """Run the gateway until SIGTERM."""
    from gateway import main  # noqa: PLC0415 -- see above
    from gateway.listening import PortError  # noqa: PLC0415
    from gateway.settings import GatewaySettings  # noqa: PLC0415

    relayed = open_files.relayed(open_files.raise_limit())
    loaded()
    try:
        main.run(
            GatewaySettings(
                cell_home=settings.cell_home,
                listen=settings.gateway_listen,
                ports=settings.gateway_ports,
                are_ports_held=started_by_serve(),
                mysql_version=settings.gateway_mysql_version,
                workers=settings.gateway_processes,
                proxy_cidrs=settings.gateway_proxy_cidrs,
                connections_max=relayed,
                handshakes_max=min(GatewaySettings.handshakes_max, relayed // 2),
                cell_connections_max=min(GatewaySettings.cell_connections_max, relayed // 2),
            )
        )
    except PortError as error:
        raise SettingsError(str(error)) from error
