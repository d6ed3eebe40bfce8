"""Owns what a search by a vector asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from instance_services.search import vectors
from instance_services.search.errors import ApiError
from instance_services.search.snapshots import IndexState

_RATIO: Final = 0.5


@dataclass(frozen=True)
class NearSearch:
    """`ratio` is how much nearness counts, beside words: from 0 to 1."""

    embedder: str
    vector: bytes
    ratio: float

    def similarities(self, state: IndexState) -> dict[int, float]:
        return state.vectors.similarities(state.data, state.number, self.embedder, self.vector)


def asked(given: Mapping[str, Any], state: IndexState) -> NearSearch | None:
    """None where words alone are searched. Raises ApiError."""
    hybrid, vector = given.get("hybrid"), given.get("vector")
    if hybrid is None:
        if vector is not None:
            raise ApiError(
                "missing_search_hybrid",
                "`vector` needs `hybrid`, which says of which embedder it is",
            )
        return None
    if not isinstance(hybrid, dict) or not hybrid.keys() <= {"embedder", "semanticRatio"}:
        raise ApiError(
            "invalid_search_hybrid", "`hybrid` has the members embedder and semanticRatio"
        )
    ratio = hybrid.get("semanticRatio")
    ratio = _RATIO if ratio is None else ratio
    if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0 <= ratio <= 1:
        raise ApiError("invalid_search_semantic_ratio", "semanticRatio is a number from 0 to 1")
    settings = embedder(hybrid.get("embedder"), state, "invalid_search_embedder")
    if vector is None:
        # Nothing here makes a vector of the words; without a need for one, they are searched.
        if ratio == 1 and given.get("q"):
            raise ApiError(
                "vector_embedding_error", "the embedder makes no vectors: send one as `vector`"
            )
        return None
    if not vectors.is_vector(vector):
        raise ApiError("invalid_search_vector", "`vector` is an array of numbers")
    vectors.check_dimensions(vector, settings)
    return NearSearch(hybrid["embedder"], vectors.packed(vector), float(ratio)) if ratio else None


def embedder(name: Any, state: IndexState, code: str) -> dict[str, Any]:
    """The settings of one. Raises ApiError with `code` where there is none of that name."""
    found = state.settings["embedders"].get(name) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(state.settings["embedders"]) or "none"
        raise ApiError(code, f"there is no embedder `{str(name)[:200]}`; there are: {known}")
    return dict(found)
