"""Owns the API's contract: where it is, and what strangers may read of it."""

from pathlib import Path
from typing import Any, Final

from clients.source import Shipped

PUBLIC_EXTENSIONS: Final = frozenset(
    {"x-about-instance", "x-authorize", "x-confirm", "x-events", "x-sent-to", "x-wait"}
)


def place() -> Path:
    """Its root: beside the packages in a checkout, inside ours when installed."""
    here = Path(__file__).resolve().parent
    beside = here.parent / "openapi.yaml"
    return beside if beside.exists() else here / "openapi.yaml"


def scim_place() -> Path:
    """The document of the SCIM server, which is a standard's and no part of the API's."""
    return Path(__file__).resolve().parent.parent / "handlers" / "sso" / "scim.yaml"


def files() -> list[Path]:
    """The root, and a file for each area in `openapi/` beside it."""
    root = place()
    return [root, *sorted((root.parent / root.stem).glob("*.yaml"))]


def public() -> dict[str, Any]:
    """The whole document in one piece, as `/openapi.json` serves it."""
    from specserver import Document  # noqa: PLC0415 -- slow, and no client needs it twice

    return Document.load(place(), checked=True).public(PUBLIC_EXTENSIONS)


def shipped() -> Shipped:
    """For clients that have asked no server yet."""
    stamps = [(one.name, one.stat()) for one in files()]
    stamp = "-".join(f"{name}-{stat.st_mtime_ns}-{stat.st_size}" for name, stat in stamps)
    return Shipped(f"{place()}-{stamp}", public)
