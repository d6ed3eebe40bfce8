"""Owns the start of the process: what is not to be loaded, before anything is."""

import gc
import sys

# structlog would load rich, a tenth of the whole start, to show exceptions in color. For pandas the
# engine's binding looks twice for each parameter, on disk: most of its time.
for _name in ("rich", "pandas"):
    sys.modules.setdefault(_name, None)  # type: ignore[arg-type]  # says that there is none

# All that is loaded stays; to look for garbage among it would take a tenth of the start, too.
gc.disable()
from instance_services.duckdb.command import main  # noqa: E402

gc.freeze()
gc.enable()

if __name__ == "__main__":
    sys.exit(main())
