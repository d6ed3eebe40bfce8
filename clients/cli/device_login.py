"""Signing in from a browser on any machine (RFC 8628): the terminal shows a code, and waits.

So it works over ssh and in containers, where no browser is. The token comes by an answer to this
program, and stands in no address, argument or history.
"""

import re
from time import monotonic, sleep
from typing import Any, Final

import typer

from clients import errors
from clients.cli.command_context import CommandContext
from clients.cli.output import plain

BEGIN: Final = "/device-logins"
EXCHANGE: Final = "/device-logins/actions/exchange"
WAITING: Final = "authorization_pending"
_INTERVALS_S: Final = (1, 60)
_LONGEST_S: Final = 3_600
_PAGE: Final = re.compile(r"https?://[!-~]{1,500}")
_CODE: Final = re.compile(r"[A-Z0-9-]{4,20}")


def session(context: CommandContext) -> dict[str, Any]:
    """The session that somebody lets this program have.

    Raises Forbidden where they refuse, and Conflict where nobody does so in time.
    """
    begun = _begun(context)
    until = monotonic() + min(int(begun["expires_in_s"]), _LONGEST_S)
    shortest, longest = _INTERVALS_S
    interval_s = min(max(int(begun["interval_s"]), shortest), longest)
    _show(begun)
    while True:
        sleep(interval_s)
        try:
            return _fetched(context, str(begun["device_code"]))
        except errors.Problem as problem:
            if problem.code != WAITING and not isinstance(problem, errors.TooManyRequests):
                raise
            waiting: errors.ClientError = problem
        except errors.ConnectionFailed as error:
            # A laptop that has slept, or a network that comes and goes.
            waiting = error
        if monotonic() >= until:
            raise waiting


def _begun(context: CommandContext) -> dict[str, Any]:
    begun: dict[str, Any] = context.client.send(context.operation("POST", BEGIN), {}).body
    page, code = str(begun["verification_url"]), str(begun["user_code"])
    if _PAGE.fullmatch(page) is None or _CODE.fullmatch(code) is None:
        raise errors.MalformedAnswer("the server names no page and code to sign in with")
    return begun


def _fetched(context: CommandContext, device_code: str) -> dict[str, Any]:
    operation = context.operation("POST", EXCHANGE)
    answer: dict[str, Any] = context.client.send(operation, {"device_code": device_code}).body
    return answer


def _show(begun: dict[str, Any]) -> None:
    minutes = int(begun["expires_in_s"]) // 60
    for line in (
        "Open this page in a browser, on this or any other machine, and sign in there:",
        "",
        f"    {begun['verification_url']}",
        "",
        f"Then enter this code: {begun['user_code']}",
        "",
        f"Waiting for {minutes} minutes; Ctrl-C ends it, and nobody is signed in.",
    ):
        typer.echo(plain(line), err=True)
