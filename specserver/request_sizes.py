"""Owns what the parts of a request may be that nobody reads as a whole before they have arrived."""

from typing import Final

from specserver.problems import BadRequest, Problem

FIELDS_BYTES_MAX: Final = 65_536
# Each takes more than a hundred bytes of memory, however short it is.
FIELDS_MAX: Final = 128
# Each piece of a body costs as much as a large one, and a client can send a million in a second.
SMALL_BYTES: Final = 16
SMALL_PIECES_MAX: Final = 4_096


class RequestSizes:
    """Of one request at a time. Header fields and trailers, which are ignored, count alike."""

    __slots__ = ("_fields", "_fields_bytes", "_small_pieces")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._fields = self._fields_bytes = self._small_pieces = 0

    def add_field(self, name: bytes, value: bytes) -> None:
        """Raises the problem of more, or of larger ones, than may be."""
        self._fields += 1
        self._fields_bytes += len(name) + len(value)
        if self._fields_bytes > FIELDS_BYTES_MAX:
            raise too_large()
        if self._fields > FIELDS_MAX:
            raise Problem(431, f"the request has more than {FIELDS_MAX} header fields")

    def add_piece(self, body: bytes) -> None:
        """A chunk of the body, or as much of it as came at once."""
        if len(body) < SMALL_BYTES:
            self._small_pieces += 1
            if self._small_pieces > SMALL_PIECES_MAX:
                raise BadRequest(
                    f"the body is sent in more than {SMALL_PIECES_MAX} pieces of less than"
                    f" {SMALL_BYTES} bytes; send larger ones"
                )


def too_large() -> Problem:
    return Problem(431, f"the header fields are larger than {FIELDS_BYTES_MAX} bytes")
