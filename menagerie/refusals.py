"""What makes a command of the server end with one line: settings and databases that are no use."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unusable(role: str) -> Iterator[None]:
    """What cannot be used ends the process with the reason in a line: database 1, settings 2."""
    from menagerie.errors import SettingsError  # noqa: PLC0415 -- slow to import
    from storage.errors import SchemaUnknown, StorageUnavailable  # noqa: PLC0415 -- as above

    try:
        yield
    except SettingsError as error:
        _end(2, f"menagerie {role}: {error}", error)
    except SchemaUnknown as error:
        from menagerie.processes import REFUSED, started_by_serve  # noqa: PLC0415 -- as above

        # To be started again would not help, and the `serve` that tends this part must know.
        status = REFUSED if started_by_serve() else 1
        _end(status, f"menagerie {role}: {error.detail}", error)
    except StorageUnavailable as error:
        reason = str(getattr(error.__cause__, "orig", None) or "").partition("\n")[0]
        text = f"menagerie {role}: {error.detail}{f': {reason}' if reason else ''}"
        _end(1, f"{text}; check the setting database_url", error)


def _end(status: int, text: str, error: Exception) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 -- for people
    raise SystemExit(status) from error
