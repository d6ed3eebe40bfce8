"""Owns the start of the process: what is not to be loaded, before anything is."""

import sys

# structlog would load rich, a tenth of the whole start, to show exceptions in color. For pandas the
# engine's binding looks twice for each parameter, on disk: most of its time.
for _name in ("rich", "pandas"):
    sys.modules.setdefault(_name, None)  # type: ignore[arg-type]  # says that there is none

from instance_services.duckdb.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
