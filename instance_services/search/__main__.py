"""Owns the start of the process: what is not to be loaded, before anything is."""

import sys

# structlog would load it to show exceptions in color.
sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # says that there is none

from instance_services.search.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
