"""Who the cell is to a server of its own: one user, with a password of each start.

The server is told it, and anybody may send one through the gateway: whoever had taken a server over
would know it for good.
"""

import secrets

from cell.engines.driver import Login
from cell.engines.resp.configuration import ADMINISTRATOR
from cell.layout import Site, write_atomically
from cell.runtime.host import Host

FILE = "administrator"


def login(host: Host, site: Site) -> Login:
    """As the server knows it that runs, or the one that starts next."""
    try:
        start = f":{(site.configuration / FILE).read_text()}"
    except FileNotFoundError:
        start = ""  # of a server that was started before each start had a password of its own
    return Login(ADMINISTRATOR, host.secret(site, f"{ADMINISTRATOR}{start}"))


def renew(site: Site) -> None:
    """For a server that does not run."""
    write_atomically(site.configuration / FILE, secrets.token_hex(16).encode())
