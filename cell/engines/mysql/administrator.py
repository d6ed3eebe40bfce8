"""Who the cell is to a server of its own: a name of each start, and a password of the site's.

What an intruder once had written in the administrator's name (a routine, a view, an event) names
an account that the next start does not have, and cannot guess the one it has.
"""

import secrets

from cell.engines.driver import Login
from cell.layout import Site, write_atomically
from cell.runtime.host import Host

FILE = "administrator"
PURPOSE = "menagerie"
# Of a server that was started before each start had a name of its own.
FORMER = "menagerie"


def login(host: Host, site: Site) -> Login:
    """As the server knows it that runs, or the one that starts next."""
    try:
        name = (site.configuration / FILE).read_text()
    except FileNotFoundError:
        name = FORMER
    return Login(name, host.secret(site, PURPOSE))


def renew(host: Host, site: Site) -> Login:
    """For a server that does not run."""
    name = f"menagerie_{secrets.token_hex(8)}"
    write_atomically(site.configuration / FILE, name.encode())
    return login(host, site)
