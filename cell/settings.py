"""What can be set about a cell."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gateway import ports

DOUBLED_MAX = 20


@dataclass(frozen=True)
class CellSettings:
    """`engines` None offers every engine a driver finds here; a tuple offers only those of them."""

    home: Path
    cell_id: str
    control_public_key: bytes
    region: str = "local"
    instance_domain: str = "localhost"
    # Where clients reach the gateway, by protocol.
    ports: Mapping[str, int] = field(default_factory=ports.DEFAULT.copy)
    engines: tuple[str, ...] | None = None

    # The directory of the ACME server that certifies custom domains; empty: the local CA does.
    acme_directory: str = ""
    acme_contact: str = ""
    acme_terms_agreed: bool = False
    # Trusted for the server's own TLS; empty: what the system trusts.
    acme_ca_file: str = ""
    # External account binding, of servers that want one; the key as they give it (base64url).
    acme_eab_key_id: str = ""
    acme_eab_hmac_key: str = field(default="", repr=False)
    # Between a domain's first order and its second; doubled from order to order of a week.
    acme_retry_s: float = 300.0
    acme_retry_max_s: float = 21_600.0

    # Whether engines end with the cell; without it they outlive it, and the next cell adopts them.
    stop_engines: bool = True
    # False leaves out what bubblewrap and cgroups give, as on a machine that has neither.
    confine: bool = True

    # How long a cell that is just ending in the same home is waited for.
    home_wait_s: float = 10.0
    # How long an engine may take until a login works, and to end by itself when asked.
    start_timeout_s: float = 60.0
    # The same where the engine says meanwhile that it is still reading its data.
    load_timeout_s: float = 900.0
    # How long an upgrade may take, or what a branch begins with; the control plane gives a change
    # half an hour, with the snapshot before it.
    upgrade_timeout_s: float = 1500.0
    stop_timeout_s: float = 10.0

    # Where backups are kept: file:///path, s3://bucket/prefix, gs://… or az://…; empty: `backups`
    # in the home. Credentials are those of the environment.
    backup_store_url: str = ""
    # Where backups are copied to besides, where an instance wants that; empty: nowhere. Credentials
    # are those of the environment with the prefix BACKUP_COPY_; see cell/backups/variables.py.
    backup_copy_store_url: str = ""
    # How often it is looked whether more WAL is to be copied, and how often the two stores are
    # compared; how long after a fault it is tried again, doubled from fault to fault; and after how
    # long with faults copies count as late.
    backup_copy_look_s: float = 30.0
    backup_copy_check_s: float = 3600.0
    backup_copy_retry_s: float = 5.0
    backup_copy_retry_max_s: float = 300.0
    backup_copy_late_after_s: float = 900.0
    # The age recipient (age1…) that the keys of backups are wrapped for; empty: one of the home.
    backup_recovery_recipient: str = ""
    # Larger data is not restored to verify its backup: that its checksums are right is enough.
    backup_verify_bytes_max: int = 10 * 10**9
    # How many backups in a row hold only what changed, before the next one is full again, and for
    # how long; 0: all are full. Smaller data than that is always backed up whole.
    backup_increments_max: int = 7
    backup_full_every_s: float = 7 * 86_400.0
    backup_increment_bytes_min: int = 256 * 2**20
    # How fast the store is read and written, all backups and restores together; 0: no limit.
    backup_bytes_per_s: int = 0
    # How long a backup may take until it is in the store, and then to verify it.
    backup_timeout_s: float = 6 * 3600.0
    backup_verify_timeout_s: float = 3600.0
    # How long a dump may take, with its engine's locks, and the download of a backup.
    dump_timeout_s: float = 3600.0
    download_timeout_s: float = 6 * 3600.0
    # How often it is looked how far WAL is archived, of a server that writes and of one that does
    # not; after how long without that it counts as late; how often the store is compared with it.
    wal_look_s: float = 2.0
    wal_idle_look_s: float = 30.0
    wal_late_after_s: float = 120.0
    wal_check_every_s: float = 300.0
    # How much WAL of an instance waits on the cell's disk for the store, or in its server for the
    # cell. What is more is given up: the window of moments that can be restored begins anew.
    wal_spool_bytes_max: int = 2**30
    # How long it may take to replay WAL up to a moment.
    recovery_timeout_s: float = 6 * 3600.0
    # Networks (10.0.0.0/8, …) that sources of migrations may be in although they are private.
    migration_networks: tuple[str, ...] = ()
    # How long a source may send nothing while its rows are copied.
    migration_silence_s: float = 600.0
    # How long it is tried to remove what a migration made at a source that does not answer.
    migration_leave_s: float = 60.0
    # A connection that wakes an instance is held by the gateway for less than this.
    wake_timeout_s: float = 60.0
    tick_s: float = 1.0

    # How often an engine that runs is looked at; and after how long it is ended and started again
    # where it says that it cannot go on, or says nothing.
    health_every_s: float = 10.0
    stuck_after_s: float = 3.0
    silent_after_s: float = 30.0

    # A crashed engine is started again at once, then ever more slowly. An engine that ran longer
    # than `healthy_after_s` begins anew; past `failures_max` quick deaths the instance is failed.
    restart_first_s: float = 0.1
    restart_max_s: float = 30.0
    failures_max: int = 6
    healthy_after_s: float = 60.0

    # How long the cell reports an erased instance, after the first report.
    erased_told_s: float = 600.0

    # A log file past this size is set aside, once.
    log_bytes_max: int = 10_000_000

    # The host's clock; what the control plane signs puts it right.
    clock: Callable[[], float] = time.time

    # None leaves structlog as the caller has set it up.
    log_format: Literal["json", "text"] | None = None
    log_level: str = "info"

    def restart_wait_s(self, failures: int) -> float:
        """Before an engine is started again that ended so many times in a row."""
        if failures == 1:
            return 0.0
        # Doubled, and not raised to a power: an instance may fail for days.
        wait_s = self.restart_first_s
        for _ in range(min(failures - 2, DOUBLED_MAX)):
            wait_s *= 2
        return min(self.restart_max_s, wait_s)
