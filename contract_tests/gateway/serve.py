"""Runs a gateway for a test: `python serve.py HOME '{"ports": {"https": 0}}'`."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from menagerie.unwanted import hide

# As menagerie/part.py has it.
hide("rich", "trio", "httpx._main")

from gateway.main import run  # noqa: E402
from gateway.settings import GatewaySettings  # noqa: E402


def main(arguments: list[str]) -> None:
    home, given = arguments
    options = json.loads(given)
    options["proxy_cidrs"] = tuple(options.get("proxy_cidrs", ()))
    run(GatewaySettings(Path(home), log_format="json", **options))


if __name__ == "__main__":
    main(sys.argv[1:])
