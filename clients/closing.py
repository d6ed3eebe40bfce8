"""What a `with` closes."""

import abc
from types import TracebackType
from typing import Self


class Closing(abc.ABC):
    """Of use in a `with`, which closes it however it ends."""

    @abc.abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
