"""Starts what the settings ask for: the operator's metrics, and traces."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gateway.figures import FILE as GATEWAY_FILE
from menagerie.errors import SettingsError
from menagerie.monitoring import folder
from menagerie.settings import Settings

if TYPE_CHECKING:  # what it takes to serve them is imported where they are
    from storage.database import Database

STANDARD: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""The variables that say where traces go, in place of the setting."""


def begin(settings: Settings, role: str, database: "Database") -> Callable[[], None]:
    """Of a process of the control plane; what is returned ends it. Raises SettingsError."""
    endings = [each for each in (_serve(settings, database), trace(settings, role)) if each]

    def end() -> None:
        for each in endings:
            each()

    return end


def trace(settings: Settings, role: str) -> Callable[[], None] | None:
    """Of any process; what is returned ends it."""
    if not settings.otel_endpoint and not any(map(os.environ.get, STANDARD)):
        return None
    try:
        from menagerie.monitoring.open_telemetry import (  # noqa: PLC0415 -- an extra, and slow
            record,
        )
    except ImportError as error:
        raise SettingsError(
            "otel_endpoint: OpenTelemetry is not installed; run `pip install"
            " 'menagerie[tracing]'`, or leave the setting empty"
        ) from error
    return record(settings.otel_endpoint, role, settings.region)


def _serve(settings: Settings, database: "Database") -> Callable[[], None] | None:
    if not settings.metrics_port:
        return None
    # Only here: the library is of no use where nobody scrapes.
    import control  # noqa: PLC0415
    from control.monitoring import measures  # noqa: PLC0415
    from menagerie.monitoring import collectors, kept_figures, pool, server  # noqa: PLC0415
    from specserver import instruments  # noqa: PLC0415

    figures = kept_figures.KeptFigures()
    looked_up = [
        collectors.MeasureCollector(database, measures.collect(control)),
        collectors.GatewayCollector(settings.cell_home / "run" / GATEWAY_FILE),
    ]
    served = server.MetricsServer(figures, looked_up)
    served.start(settings.metrics_listen, settings.metrics_port, shared=folder.is_shared())
    instruments.listen(figures)
    pool.watch(database)
    return served.stop
