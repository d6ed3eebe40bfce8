"""What `/healthz` tells of a service, and what of it keeps the service from being ready."""

from typing import Any, Final

LONGEST_PAUSE_S: Final = 2.0
"""Strangers may ask once a second, and others at the same address ask too."""


def pause_s(asked_for_s: float, first_s: float) -> float:
    """Until the next question: a start that takes long is noticed a fifth of that later."""
    return min(LONGEST_PAUSE_S, first_s + asked_for_s / 5)


def missing(health: dict[str, Any]) -> list[str]:
    """What it is not ready for, each with the reason. Little room on the disk is a warning."""
    found = {name: each for name, each in health["checks"].items() if each["status"] != "ok"}
    return [f"{name}: {each['detail']}" for name, each in found.items() if not _serves(name, each)]


def warnings(health: dict[str, Any]) -> list[str]:
    return [each["detail"] for each in health["checks"].values() if each["detail"]]


def _serves(name: str, check: dict[str, Any]) -> bool:
    return name == "database" and check["status"] == "degraded"
