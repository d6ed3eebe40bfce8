"""The folders of an instance, as its engine finds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cell.layout import Site
from cell.runtime.confinement import Mount

INSIDE = Path("/instance")


@dataclass(frozen=True)
class EngineFolders:
    """Where an engine finds its folders."""

    data: Path
    configuration: Path
    run: Path


def folders_of(site: Site, further: Sequence[Mount]) -> list[Mount]:
    return [
        Mount(site.configuration, INSIDE / "conf", writable=False),
        Mount(site.data.outside, INSIDE / "data", writable=True),
        Mount(site.run.outside.resolve(), INSIDE / "run", writable=True),
        *further,
    ]
