"""What the commands of this folder print when they are asked how they are used."""

from collections.abc import Sequence


def is_asked(arguments: Sequence[str], usage: str | None) -> bool:
    """Whether `-h` or `--help` is among the arguments; the usage is printed then."""
    if not {"-h", "--help"} & {*arguments}:
        return False
    print((usage or "").strip())
    return True
