"""The sizes that can be ordered, smallest first: the nine of instances, and the other families."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

# Memory is counted in powers of two and storage in powers of ten, as the price list writes them.
MIB: Final = 2**20
GIB: Final = 2**30
GB: Final = 10**9
TB: Final = 10**12


@dataclass(frozen=True)
class Size:
    """A size of database instances."""

    name: str
    vcpu: float
    memory_bytes: int
    storage_bytes_included: int
    storage_bytes_max: int
    storage_step_bytes: int
    connections_max: int


@dataclass(frozen=True)
class OtherSize:
    """A size of another hosted kind. It is listed, and cannot be ordered as an instance."""

    name: str
    family: str
    vcpu: float
    memory_bytes: int
    storage_bytes: int


SIZES: Final[Mapping[str, Size]] = MappingProxyType(
    {
        size.name: size
        for size in (
            Size("f0", 0.063, 512 * MIB, 1 * GB, 1 * GB, 1 * GB, 20),
            Size("s0", 0.25, 1 * GIB, 5 * GB, 20 * GB, 1 * GB, 60),
            Size("s1", 0.5, 2 * GIB, 10 * GB, 50 * GB, 1 * GB, 100),
            Size("s2", 1, 4 * GIB, 20 * GB, 200 * GB, 5 * GB, 200),
            Size("m2", 2, 8 * GIB, 50 * GB, 500 * GB, 10 * GB, 400),
            Size("m4", 4, 16 * GIB, 100 * GB, 1 * TB, 10 * GB, 800),
            Size("l8", 8, 32 * GIB, 200 * GB, 4 * TB, 50 * GB, 1_500),
            Size("l16", 16, 64 * GIB, 400 * GB, 8 * TB, 100 * GB, 3_000),
            Size("xl32", 32, 128 * GIB, 800 * GB, 16 * TB, 100 * GB, 5_000),
        )
    }
)

OTHER_SIZES: Final[tuple[OtherSize, ...]] = (
    OtherSize("c0", "app", 0.25, 512 * MIB, 1 * GB),
    OtherSize("c1", "app", 0.5, 1 * GIB, 2 * GB),
    OtherSize("c2", "app", 1, 2 * GIB, 4 * GB),
    OtherSize("c3", "app", 2, 4 * GIB, 8 * GB),
    OtherSize("w1", "workspace", 2, 4 * GIB, 20 * GB),
    OtherSize("w2", "workspace", 4, 8 * GIB, 40 * GB),
    OtherSize("w3", "workspace", 8, 16 * GIB, 80 * GB),
    OtherSize("x1", "sandbox", 1, 1 * GIB, 5 * GB),
    OtherSize("x2", "sandbox", 2, 2 * GIB, 10 * GB),
    OtherSize("x4", "sandbox", 4, 4 * GIB, 20 * GB),
)
