"""A port that is kept for somebody who listens at it later, or ceases to and listens again."""

import socket


def kept_port() -> socket.socket:
    """It is kept until this is closed: nobody else is given it, though nobody listens at it.

    Whoever sets SO_REUSEADDR may listen at it all the same, as servers do. So no other process
    can be quicker, which it can where a port was only found free.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    return keeper


def number(keeper: socket.socket) -> int:
    return int(keeper.getsockname()[1])
