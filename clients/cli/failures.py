"""How failures read on a terminal, and the exit codes that tell scripts apart what happened."""

import os
import re
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import typer

from clients import errors
from clients.cli.output import plain
from clients.schemas import DocumentError

OTHER: Final = 1
USAGE: Final = 2
AUTH: Final = 3
NOT_FOUND: Final = 4
CONFLICT: Final = 5
INVALID: Final = 6
APPROVAL: Final = 7
INTERRUPTED: Final = 130

# First match wins: the narrow ones stand before those they belong to.
EXIT_CODES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (errors.SignInRequired, AUTH),
    (errors.ConfigurationError, USAGE),
    (errors.UnknownName, NOT_FOUND),
    (errors.Unauthenticated, AUTH),
    (errors.Forbidden, AUTH),
    (errors.NotFound, NOT_FOUND),
    (errors.Conflict, CONFLICT),
    (errors.Invalid, INVALID),
    (errors.ApprovalAwaited, APPROVAL),
)
HINTS: Final = {
    errors.SignInRequired: "sign in with `menagerie login`, or set an API key (MENAGERIE_API_KEY)",
    errors.Unauthenticated: "the token was not accepted; sign in again with `menagerie login`",
    errors.ConnectionFailed: "`menagerie profiles show` shows which server is used",
}
STEP_UP: Final = re.compile(r"mfa|second factor|assurance", re.IGNORECASE)


# What reading something of another shape than was expected ends in.
UNREADABLE: Final = (LookupError, TypeError, AttributeError, ValueError, RecursionError)


def exit_code(error: Exception) -> int:
    if isinstance(error, errors.QueryFailed):
        return {400: INVALID, 401: AUTH, 413: INVALID}.get(error.status, OTHER)
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), OTHER)


def show(error: Exception) -> None:
    """Write the failure to stderr, one fact a line."""
    for line in lines(error):
        typer.echo(plain(line), err=True)


def is_of_clients(error: Exception) -> bool:
    """Not where a command of the server failed: whoever runs one needs the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return not any(Path(frame.filename).parent.name == "menagerie" for frame in frames)


def show_unexpected(error: Exception) -> None:
    """Write one line with what a report needs: a traceback tells most people nothing."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = str(error).partition("\n")[0][:200]
    where = f"{Path(place.filename).name}:{place.lineno}"
    typer.echo(
        plain(
            f"error: unexpected {type(error).__name__} at {where}: {said}; the server answered "
            "something that this version does not know, or this is a bug"
        ),
        err=True,
    )


def show_of_system(error: OSError) -> None:
    """Write one line with what the system refused: a full disk, a file of somebody else's."""
    what = error.strerror or str(error) or type(error).__name__
    where = "" if error.filename is None else f": {os.fsdecode(error.filename)}"
    typer.echo(plain(f"error: {what}{where}"), err=True)
    _drop_what_cannot_be_written()


def _drop_what_cannot_be_written() -> None:
    """Else Python tries it again as it ends, and tells with a traceback that it could not."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def lines(error: Exception) -> list[str]:
    """Answer what there is to say: what, why, each violation by its option, whom to ask."""
    if not isinstance(error, errors.Problem):
        what = (
            "cannot use the server's OpenAPI document: " if isinstance(error, DocumentError) else ""
        )
        return [f"error: {what}{error}", *_hint(error)]
    said = [f"error: {error.title} ({error.status})"]
    if error.detail and error.detail != error.title and not _is_said_below(error):
        said.append(f"  {error.detail}")
    said += [
        f"  {_place(one)}: {one.get('message', one.get('keyword', 'invalid'))}"
        for one in error.violations
    ]
    # A server's text begins no line of ours.
    said = [each.replace("\n", "\n    ") for each in said]
    if error.retry_after_s is not None:
        said.append(f"  try again in {error.retry_after_s:.0f} s")
    if error.request_id:
        said.append(f"request id: {error.request_id}")
    return said + _hint(error)


def _is_said_below(error: errors.Problem) -> bool:
    """Whether the detail only repeats the one violation there is."""
    found = error.violations
    return len(found) == 1 and error.detail.endswith(str(found[0].get("message")))


def _place(violation: Mapping[str, Any]) -> str:
    """Answer the option a violation is about: `/a_b/0/c` is `--a-b (0/c)`."""
    if violation.get("parameter"):
        return option_name(str(violation["parameter"]))
    first, _, rest = str(violation.get("pointer", "")).lstrip("#/").partition("/")
    if not first:
        return "body"
    return option_name(first) + (f" ({rest})" if rest else "")


def option_name(field_name: str) -> str:
    return "--" + re.sub(r"[^a-z0-9]+", "-", field_name.lower()).strip("-")


def _hint(error: Exception) -> list[str]:
    if isinstance(error, errors.Forbidden) and STEP_UP.search(f"{error.code} {error.detail}"):
        line = "`menagerie login --step-up` adds the second factor to the session"
        return [f"hint: {line}", "hint: `menagerie me enrol-totp` enrolls one if you have none"]
    if isinstance(error, errors.Forbidden) and error.code == "sso_required":
        return ["hint: `menagerie login --sso` signs in with your identity provider"]
    if isinstance(error, errors.Forbidden) and error.code == "session_required":
        return ["hint: `menagerie login` signs in; this is not for API keys"]
    if isinstance(error, errors.Forbidden) and error.code == "password_required":
        return ["hint: `--password -` reads it from stdin; `menagerie login` signs in again"]
    return [f"hint: {hint}" for kind, hint in HINTS.items() if type(error) is kind]
