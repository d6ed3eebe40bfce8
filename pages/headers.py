"""The headers of every page: nothing from elsewhere, nothing inside others, nothing kept."""

from typing import Final

from flask import Response, g, request

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
WITHOUT_SCRIPTS: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
ALWAYS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def add(response: Response) -> Response:
    response.headers.update(ALWAYS)
    if nonce := g.get("nonce"):
        # The editor adds styles as it goes, and names this page's own word for it.
        styles = f"style-src 'self' 'nonce-{nonce}'"
        response.headers["Content-Security-Policy"] = POLICY.replace("style-src 'self'", styles)
    # Script and style hold nothing of anybody; a browser asks whether they are new.
    if request.endpoint != "static" or not response.is_streamed:
        response.headers["Cache-Control"] = "no-store"
    return response


def add_to_account(response: Response) -> Response:
    """As `add`, on pages without scripts: nor would one run that somebody got into them.

    Those that ask for a passkey have one, of a file.
    """
    add(response)
    policy = WITHOUT_SCRIPTS
    if g.get("has_script"):
        policy = policy.replace("style-src", "script-src 'self'; style-src")
    response.headers["Content-Security-Policy"] = policy
    return response
