"""Owns the vectors that searches compare: those of an index in memory, as its state has them."""

import sqlite3
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from instance_services.search.errors import ApiError

Key = tuple[int, str]


@dataclass(frozen=True)
class Matrix:
    """`rows`, `documents` and `vectors` belong together, in the order of the documents."""

    version: str
    rows: Any
    documents: Any
    vectors: Any

    @property
    def size_bytes(self) -> int:
        return int(self.vectors.nbytes)


class VectorStore:
    """One for a process. A state that was read before is changed, and not read again.

    All that is kept has at most so many bytes; while an index changes, its own are there twice.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[Key, Matrix] = OrderedDict()
        self._lock = threading.Lock()

    def similarities(
        self, data: sqlite3.Connection, number: int, embedder: str, vector: bytes
    ) -> dict[int, float]:
        """By document from 0 to 1, how near its best vector is; over the caller's transaction.

        Raises ApiError where the vectors need more memory than there is for them.
        """
        import numpy as np  # noqa: PLC0415 - most instances have no vectors

        matrix = self._matrix(data, (number, embedder))
        if not len(matrix.rows):
            return {}
        wanted = np.frombuffer(vector, dtype=np.float32)
        near = (1.0 + matrix.vectors @ wanted) / 2.0
        first = np.flatnonzero(np.diff(matrix.documents, prepend=-1))
        best = np.clip(np.maximum.reduceat(near, first), 0.0, 1.0)
        return dict(zip(matrix.documents[first].tolist(), best.tolist(), strict=True))

    def _matrix(self, data: sqlite3.Connection, key: Key) -> Matrix:
        (version,) = data.execute(
            "SELECT updated_at FROM indexes WHERE number = ?", key[:1]
        ).fetchone()
        with self._lock:
            known = self._kept.get(key)
            if known is None or known.version != version:
                self._refuse_too_many(data, key)
                known = _read(data, key, version, known)
            self._kept[key] = known
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and self._size_bytes() > self._bytes_max:
                self._kept.popitem(last=False)
        return known

    def _refuse_too_many(self, data: sqlite3.Connection, key: Key) -> None:
        """All vectors of an embedder are equally long."""
        (count, one_bytes) = data.execute(
            "SELECT count(*), (SELECT length(vector) FROM vectors WHERE index_number = ?1"
            " AND embedder = ?2 LIMIT 1) FROM vectors WHERE index_number = ?1 AND embedder = ?2",
            key,
        ).fetchone()
        needed = count * (one_bytes or 0)
        if needed > self._bytes_max:
            raise ApiError(
                "bad_request",
                f"the {count:,} vectors of the embedder `{key[1][:100]}` need"
                f" {needed / 2**20:,.0f} MiB of memory, and this size has"
                f" {self._bytes_max / 2**20:,.0f} MiB for them: choose a larger size, fewer"
                " dimensions or fewer documents",
            )

    def _size_bytes(self) -> int:
        return sum(each.size_bytes for each in self._kept.values())


def _read(data: sqlite3.Connection, key: Key, version: str, known: Matrix | None) -> Matrix:
    """Only what is new is read: a row never changes, and no number is used again."""
    import numpy as np  # noqa: PLC0415 - as above

    where = "index_number = ? AND embedder = ?"
    # Rows are made with their documents, so that this is the order of the documents too.
    found = data.execute(
        f"SELECT id, document FROM vectors WHERE {where} ORDER BY id",  # noqa: S608 - ours
        key,
    ).fetchall()
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    rows, documents = pairs[:, 0], pairs[:, 1]
    last = -1 if known is None or not len(known.rows) else int(known.rows[-1])
    new = data.execute(
        f"SELECT vector FROM vectors WHERE {where} AND id > ? ORDER BY id",  # noqa: S608 - ours
        (*key, last),
    ).fetchall()
    blob = bytearray().join(vector for (vector,) in new)
    vectors = np.frombuffer(blob, dtype=np.float32).reshape(len(new), -1 if new else 0)
    if known is not None and len(new) < len(rows):
        kept = np.isin(known.rows, rows, assume_unique=True)
        if kept.sum() + len(new) != len(rows):
            # What is known is of a later state, where some of these are not any more.
            return _read(data, key, version, None)
        old = known.vectors if kept.all() else known.vectors[kept]
        vectors = np.concatenate([old, vectors]) if new else old
    return Matrix(version, rows, documents, vectors)
