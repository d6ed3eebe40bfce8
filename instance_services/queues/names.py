"""What a queue may be called, beyond what the document's pattern says."""

from typing import Final

from specserver import Invalid

# PGMQ makes relations with these ends for each queue, and IF NOT EXISTS takes one for another.
_TAKEN: Final = ("_vt_idx", "_pkey", "_msg_id_seq")


def check(name: str) -> None:
    """Raises Invalid for a name whose table would be another queue's index or sequence."""
    for end in _TAKEN:
        if name.endswith(end):
            message = f"cannot end with {end}, which PGMQ uses for indexes and sequences"
            violation = {"pointer": "/name", "keyword": "pattern", "message": message}
            raise Invalid(f"the name of a queue {message}", errors=[violation])
