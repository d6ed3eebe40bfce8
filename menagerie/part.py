"""A part of the service as `serve` starts it: without the command line, which it has no use for."""

import sys

from menagerie.unwanted import hide

hide("rich", "trio", "httpx._main")

from menagerie.processes import end_with_parent, keep_what_loads
from menagerie.refusals import unusable


def main(role: str) -> None:
    """Run it with the settings of the environment, until SIGTERM."""
    keep_what_loads()
    end_with_parent()
    with unusable(role):
        from menagerie import logs  # noqa: PLC0415 -- end_with_parent comes before what takes time
        from menagerie.settings import load  # noqa: PLC0415 -- as above

        settings = load()
        logs.configure(settings.log_format, settings.log_level, role=role)
        if role == "api":
            from menagerie import control_plane  # noqa: PLC0415 -- each part loads its own

            control_plane.run_api(settings)
        else:
            from menagerie import data_plane  # noqa: PLC0415 -- as above

            (data_plane.run_cell if role == "cell" else data_plane.run_gateway)(settings)


if __name__ == "__main__":
    main(sys.argv[1])
