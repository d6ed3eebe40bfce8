"""Runs a cell for a test: `python serve.py HOME KEY '{"tick_s": 0.1}' SECONDS-ITS-CLOCK-IS-OFF`."""

import base64
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from menagerie.unwanted import hide

# As menagerie/part.py has it.
hide("rich", "trio", "httpx._main")

import cell.main  # noqa: E402
from cell.settings import CellSettings  # noqa: E402
from contract_tests.loaded import load_document  # noqa: E402
from instance_services.queues import service as queues  # noqa: E402

load_document(cell.main)
load_document(queues)


def main(arguments: list[str]) -> None:
    home, key, settings, off_s = arguments
    given = json.loads(settings)
    given["clock"] = lambda: time.time() + float(off_s)
    cell.main.run(CellSettings(home=Path(home), control_public_key=base64.b64decode(key), **given))


if __name__ == "__main__":
    main(sys.argv[1:])
