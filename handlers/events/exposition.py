"""The text formats in which metrics are scraped: OpenMetrics 1.0, and Prometheus 0.0.4."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from specserver.acceptance import preferred

Kind = Literal["gauge", "counter", "info"]
_SUFFIXES: Final[Mapping[Kind, str]] = {"gauge": "", "counter": "_total", "info": "_info"}
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class MetricSample(NamedTuple):
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Naming:
    """What a format says of a family before its samples. `name` ends with the unit, if any."""

    name: str
    kind: Kind
    help: str
    unit: str = ""

    @property
    def sample_name(self) -> str:
        return self.name + _SUFFIXES[self.kind]


@dataclass(frozen=True)
class ExpositionFormat:
    """Prometheus's own names what a family consists of, knows no units, and has no end."""

    media_type: str
    is_open: bool

    @property
    def end(self) -> str:
        return "# EOF\n" if self.is_open else ""

    def head(self, of: Naming) -> str:
        if not self.is_open:
            kind = "gauge" if of.kind == "info" else of.kind
            name = of.sample_name
            return f"# HELP {name} {of.help}\n# TYPE {name} {kind}\n"
        unit = f"# UNIT {of.name} {of.unit}\n" if of.unit else ""
        return f"# TYPE {of.name} {of.kind}\n{unit}# HELP {of.name} {of.help}\n"


OPEN_METRICS: Final = ExpositionFormat(
    "application/openmetrics-text; version=1.0.0; charset=utf-8", True
)
PROMETHEUS: Final = ExpositionFormat("text/plain; version=0.0.4; charset=utf-8", False)
_FORMATS: Final = {each.media_type.partition(";")[0]: each for each in (OPEN_METRICS, PROMETHEUS)}


def chosen(accept: str | None) -> ExpositionFormat:
    """The one that the client prefers; OpenMetrics where it takes either."""
    return _FORMATS[preferred(accept, list(_FORMATS))]


def lines(of: Naming, samples: Iterable[MetricSample]) -> str:
    name = of.sample_name
    return "".join(f"{name}{{{_labels(each.labels)}}} {each.value!r}\n" for each in samples)


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
