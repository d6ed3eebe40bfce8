"""What people hold in their hands: the HTTP client and the command line, driven by openapi.yaml."""

import sys

# httpx loads a command line of its own wherever rich is installed, which takes as long as all the
# rest of it. Nothing here uses that, and it knows what to do without.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None: importing it fails
