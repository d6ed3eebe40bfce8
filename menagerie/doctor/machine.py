"""The machine as engines meet it: Python, confinement, engines, names, clock."""

import ctypes
import os
import platform
import socket
import sys
import tempfile
from collections.abc import Iterator
from typing import Final

from cell.agent import UID_FIRST
from cell.engines import PACKAGES, find
from cell.runtime.confinement import LOST, Means
from cell.runtime.host import Host
from menagerie import open_files
from menagerie.doctor.findings import Finding
from menagerie.settings import Settings

# By what the reason says, in this order.
REMEDIES: Final = (
    ("bubblewrap is not installed", "apt-get install bubblewrap"),
    ("setpriv is not installed", "apt-get install util-linux"),
    ("bubblewrap is not permitted", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
    (
        "other users cannot read",
        "move the checkout and Python to a folder that others can read, such as /opt",
    ),
    ("does not run as root", "sudo menagerie serve"),
    ("control", "systemd-run --scope -p Delegate=yes menagerie serve"),
    ("cannot be created", "systemd-run --scope -p Delegate=yes menagerie serve"),
)
_CLOCK_UNSYNCHRONIZED: Final = 0x40
_TIMEX_BYTES: Final = 512


def python() -> Iterator[Finding]:
    detail = f"{platform.python_version()} at {sys.executable}"
    yield Finding("python", "ok", detail)


def files() -> Iterator[Finding]:
    """Each part raises its soft limit to the hard one, so that is what counts."""
    hard = open_files.limits()[1]
    relayed = open_files.relayed(hard)
    detail = f"a process can open {hard} files"
    if hard < open_files.LEAST:
        detail += f", and at least {open_files.LEAST} are needed"
        yield Finding("open files", "failure", detail, open_files.REMEDY)
    elif relayed < open_files.RELAYED_MAX:
        detail += f", so each gateway process accepts {relayed} connections"
        yield Finding("open files", "warning", detail, open_files.REMEDY)
    else:
        yield Finding("open files", "ok", detail)


def confinement_and_engines() -> Iterator[Finding]:
    """Found out as a cell finds it out, so that both say the same."""
    with tempfile.TemporaryDirectory(prefix="menagerie-doctor-") as folder:
        host = Host(folder, f"doctor-{os.getpid()}", PACKAGES, uids=range(UID_FIRST, UID_FIRST + 1))
        try:
            for name, means in host.confinement.items():
                yield _of_means(name, means)
            found = find(host)
        finally:
            host.close()
    for name, driver in sorted(found.drivers.items()):
        yield Finding(f"engine {name}", "ok", f"{', '.join(driver.versions())} ({driver.source})")
    for name, refusal in sorted(found.refused.items()):
        yield Finding(f"engine {name}", "note", refusal.reason, refusal.remedy)
    if not found.drivers:
        yield Finding(
            "engines",
            "failure",
            "no engine can run on this machine",
            "fix one of the engines above",
        )


def _of_means(name: str, means: Means) -> Finding:
    check = f"confinement {name}"
    if means.enforced:
        return Finding(check, "ok", "enforced")
    reason = means.reason or "not enforced"
    remedy = next((remedy for part, remedy in REMEDIES if part in reason), None)
    return Finding(check, "warning", f"{reason}: {LOST[name]}", remedy)


def names(settings: Settings) -> Iterator[Finding]:
    domain = settings.instance_domain
    host = f"doctor.{settings.region}.{domain}"
    try:
        found = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
    except OSError:
        remedy = f"add a DNS record for *.{settings.region}.{domain}"
        if domain == "localhost":
            remedy = "apt-get install libnss-myhostname, or see `menagerie credentials`"
        yield Finding("names", "warning", f"hosts such as {host} do not resolve here", remedy)
    else:
        yield Finding("names", "ok", f"{host} resolves to {found[0][4][0]}")


def clock() -> Iterator[Finding]:
    """Whether anything sets it; how far it is off is told by the database and the service."""
    state = ctypes.create_string_buffer(_TIMEX_BYTES)
    if ctypes.CDLL(None, use_errno=True).adjtimex(state) < 0:
        yield Finding("clock", "note", "cannot tell whether it is synchronized")
        return
    # struct timex: modes (int, padded), offset, freq, maxerror, esterror (long), status (int)
    status = int.from_bytes(state.raw[40:44], sys.byteorder)
    if status & _CLOCK_UNSYNCHRONIZED:
        detail = "not synchronized; certificates and one-time URLs depend on it"
        yield Finding("clock", "note", detail, "timedatectl set-ntp true")
    else:
        yield Finding("clock", "ok", "synchronized by NTP")
