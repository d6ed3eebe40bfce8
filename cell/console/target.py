"""Where a run goes, and as whom."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """`protocol` is the driver's; `socket` the path of the engine's own."""

    protocol: str
    socket: str
    username: str
    password: str

    def __repr__(self) -> str:
        # A repr ends up in logs.
        return f"<Place {self.protocol}>"
