"""The workflows of the control plane. Importing this package registers them all."""

from control.workflows import (
    cells,
    changes,
    domains,
    erasure,
    housekeeping,
    instances,
    metering,
    networks,
    purge,
    reconcile,
)
from control.workflows.starting import start

__all__ = [
    "cells",
    "changes",
    "domains",
    "erasure",
    "housekeeping",
    "instances",
    "metering",
    "networks",
    "purge",
    "reconcile",
    "start",
]
