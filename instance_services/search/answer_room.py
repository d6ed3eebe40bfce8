"""Owns how large an answer may be: else whoever may only search could use up the memory."""

from instance_services.search.errors import ApiError


class AnswerRoom:
    """Of one request, in bytes of documents and of what is added to their texts; None is any."""

    def __init__(self, bytes_max: int | None) -> None:
        self._most = self._left = bytes_max

    def take(self, size_bytes: int) -> None:
        """To be called before they are read or made. Raises ApiError."""
        if self._left is None:
            return
        self._left -= size_bytes
        if self._left < 0:
            raise ApiError(
                "bad_request",
                f"the answer would have more than {self._most:,} bytes: ask for fewer documents at "
                "once, or for shorter marks of what is found",
            )
