"""What happens at the storage limit: transactions only read, unless somebody asks to write."""

import signal

import structlog

from cell.engines.postgres import configuration, data_folder, server
from cell.layout import Site
from cell.runtime.host import Host
from cell.runtime.process import Process
from cell.specification import ceiling_bytes

log = structlog.get_logger("cell.postgres")

READ_ONLY = b"default_transaction_read_only = 'on'\n"
# So that it does not go back and forth at the limit.
LIFTED_BELOW = 0.95
# As fast as a disk may be written to.
BYTES_PER_S = 500 * 10**6


def fills_in_s(site: Site, used_bytes: int) -> float:
    """How soon it could reach the ceiling, and must be measured again."""
    try:
        limit_bytes = configuration.storage_bytes(
            (site.configuration / configuration.FILE).read_bytes()
        )
    except FileNotFoundError:
        limit_bytes = None
    if limit_bytes is None:
        return 0.0
    return max(0.0, (ceiling_bytes(limit_bytes) - used_bytes) / BYTES_PER_S)


def hold(host: Host, site: Site, process: Process, used_bytes: int) -> None:
    """Sets or lifts it; who makes room says so in his session, and those who only write do not.

    The file is the only state: a server that is started anew is looked at again.
    """
    if not data_folder.takes_logins(site):
        return
    content = (site.configuration / configuration.FILE).read_bytes()
    limit_bytes = configuration.storage_bytes(content)
    held = content.endswith(READ_ONLY)
    if limit_bytes is None or held == (used_bytes > limit_bytes * (LIFTED_BELOW if held else 1)):
        return
    wanted = content.removesuffix(READ_ONLY) if held else content + READ_ONLY
    server.write(host, site, configuration.FILE, wanted)
    process.signal(signal.SIGHUP)
    event = "cell.storage_freed" if held else "cell.storage_full"
    log.warning(event, instance_id=site.instance_id, used_bytes=used_bytes)
