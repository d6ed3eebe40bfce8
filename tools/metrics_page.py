"""Writes the tables of docs/monitoring.md anew: `python -m tools.metrics_page`."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import control
from control.monitoring import measures
from handlers.events.metric_families import FAMILIES
from specserver import instruments

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "monitoring.md"
DECLARING: Final = ("menagerie.access", "menagerie.monitoring.pool")
"""Modules outside of `control` that declare instruments."""
OF_GATEWAY: Final = (
    ("menagerie_database_up", "", "Whether the control plane's database can be read."),
    ("menagerie_gateway_up", "", "Whether the gateway wrote its figures in the last minute."),
    ("menagerie_gateway_accepted_connections_total", "", "Connections that the gateway accepted."),
    (
        "menagerie_gateway_refused_connections_total",
        "reason",
        "Connections that the gateway refused or ended before anything was asked, by reason.",
    ),
    ("menagerie_gateway_open_connections", "", "Connections that are open in the gateway."),
    (
        "menagerie_gateway_open_handshakes",
        "",
        "Of these, those that have not asked for anything yet.",
    ),
)
Row = tuple[str, str, str]


def of_organization() -> list[Row]:
    return [
        (each.naming.sample_name, _labels(each.naming.name), each.naming.help) for each in FAMILIES
    ]


def _labels(name: str) -> str:
    further = {
        "menagerie_instance": ", name, engine, version, size, region, placement, project_id,"
        " project, team_id, team",
        "menagerie_instance_status": ", status",
    }
    return f"instance_id{further.get(name, '')}"


def of_operator() -> list[Row]:
    read = [(each.name, ", ".join(each.labels), each.help) for each in measures.collect(control)]
    for module in DECLARING:
        importlib.import_module(module)
    suffix = {"counter": "_total", "gauge": "", "histogram": ""}
    counted = [
        (each.name + suffix[each.kind], ", ".join(each.labels), each.help)
        for each in instruments.declared()
        if each.name.startswith("menagerie_")
    ]
    return sorted([*read, *counted, *OF_GATEWAY])


def table(rows: list[Row]) -> Iterator[str]:
    yield "| Metric | Labels | Meaning |"
    yield "|---|---|---|"
    for name, labels, meaning in rows:
        yield f"| `{name}` | {labels} | {meaning} |"


def written(text: str) -> str:
    """The page with its tables as they are to be, between their marks."""
    for mark, rows in (("organization", of_organization()), ("operator", of_operator())):
        begin, end = f"<!-- metrics: {mark} -->", f"<!-- end: {mark} -->"
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = "\n".join([f"{before}{begin}", *table(rows), f"{end}{after}"])
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
