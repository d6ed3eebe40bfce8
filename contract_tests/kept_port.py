"""A port that is kept for somebody who listens at it later, or ceases to and listens again."""

import socket
from typing import Self


class KeptPort:
    """A port of loopback that is kept until this is closed, and that nobody listens at here.

    Whoever sets SO_REUSEADDR or SO_REUSEPORT may listen at it all the same, as servers do; Linux
    gives such a port to nobody who asks for any. So no other process can be quicker, which it can
    where a port was only found free. Connections are refused while nobody listens.
    """

    def __init__(self) -> None:
        self._keeper = socket.socket()
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            self._keeper.setsockopt(socket.SOL_SOCKET, option, 1)
        self._keeper.bind(("127.0.0.1", 0))
        self.number = int(self._keeper.getsockname()[1])

    def close(self) -> None:
        self._keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
