"""A deliverer alone in a process, for tests that kill it: DATABASE_URL CELL_FILE."""

import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from contract_tests.workflows.fake_cell import FakeCell
from contract_tests.workflows.stage import make_services
from control.delivery import backoff
from control.webhooks.deliverer import make_deliverer
from storage.database import Database


def main(url: str, cell_file: str) -> None:
    services = make_services(Database(url), FakeCell(Path(cell_file)))
    settings = replace(services.settings, webhook_insecure_localhost=True)
    # A day of retries in some seconds: what is tested is that none is lost.
    backoff.delay_s.__defaults__ = (1.0, 0.2)
    make_deliverer(replace(services, settings=settings)).start()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
