"""The sockets of cells on this host, as URLs name them."""

import os
from typing import Final
from urllib.parse import quote, unquote

UNIX: Final = "http+unix://"


def followed(url: str) -> str:
    """A cell with a deep home puts a link where its socket would be: the kernel limits the path."""
    if not url.startswith(UNIX):
        return url
    return UNIX + quote(os.path.realpath(unquote(url.removeprefix(UNIX))))
