"""Owns what a value of CSV looks like: by how it is written, each value is of one class.

A value that would not come back as it was written is text: `007` is no number, and neither is one
of more digits than are kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from instance_services.table_files import kinds

_DAY: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_ZONE: Final = " ?(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)"
_WHOLE: Final = "(0|[1-9][0-9]*)"
_HEX: Final = "[0-9A-Fa-f]"


def _like(pattern: str) -> str:
    return f"regexp_full_match($c, '{pattern}')"


def _dated(pattern: str, kind: str) -> str:
    """The Gregorian years from 1 to 9999, which all engines have."""
    return f"{_like(pattern)} AND $c >= '0001' AND TRY_CAST($c AS {kind}) IS NOT NULL"


_BIGINT: Final = "0|-?[1-9][0-9]{0,17}"
_DECIMAL: Final = rf"-?{_WHOLE}(\.[0-9]+)?|-?\.[0-9]+"
_DOUBLE: Final = _like(rf"-?({_WHOLE}(\.[0-9]*)?|\.[0-9]+)[eE][+-]?[0-9]+")
_UUID: Final = f"{_HEX}{{8}}(-{_HEX}{{4}}){{3}}-{_HEX}{{12}}"
CLASSES: Final[tuple[tuple[str, str], ...]] = (
    (kinds.BOOLEAN, "lower($c) IN ('true', 'false')"),
    (kinds.BIGINT, _like(_BIGINT)),
    (kinds.DECIMAL, _like(_DECIMAL)),
    (kinds.DOUBLE, f"{_DOUBLE} AND isfinite(TRY_CAST($c AS DOUBLE))"),
    (kinds.DATE, _dated(_DAY, "DATE")),
    (kinds.TIMESTAMP, _dated(f"{_DAY}[ T]{_CLOCK}", "TIMESTAMP")),
    (kinds.TIMESTAMPTZ, _dated(f"{_DAY}[ T]{_CLOCK}{_ZONE}", "TIMESTAMPTZ")),
    (kinds.TIME, f"{_like(_CLOCK)} AND TRY_CAST($c AS TIME) IS NOT NULL"),
    (kinds.UUID, _like(_UUID)),
    (kinds.JSON, "$c[1] IN ('{', '[') AND json_valid($c)"),
    (kinds.BLOB, _like(rf"\\x({_HEX}{_HEX})*")),
)
"""From the narrowest: the kind, and by what a value `$c` is of it. All others are text."""
TEXT_CLASS: Final = len(CLASSES)


def class_of(column: str) -> str:
    """The number of the class of a value; NULL of none."""
    cases = " ".join(
        f"WHEN {how} THEN {number}".replace("$c", column) for number, (_, how) in enumerate(CLASSES)
    )
    return f"CASE WHEN {column} IS NULL THEN NULL {cases} ELSE {TEXT_CLASS} END::UTINYINT"


@dataclass(frozen=True)
class Digits:
    """Of the numbers of a column: before and behind the point, at most."""

    whole: int
    scale: int


def kind_of(counts: Mapping[str, int], digits: Digits) -> str:
    """What a column is whose values are of these kinds. Numbers widen; others make a text."""
    found = {kind for kind, count in counts.items() if count}
    if not found:
        return kinds.TEXT
    if len(found) == 1 and found != {kinds.DECIMAL}:
        return found.pop()
    fits = digits.whole + digits.scale <= kinds.DECIMAL_DIGITS_MAX
    if found <= {kinds.BIGINT, kinds.DECIMAL}:
        return kinds.DECIMAL if fits else kinds.TEXT
    # Beyond these digits a double does not have what was written.
    exact = digits.whole + digits.scale <= 15  # noqa: PLR2004 - of IEEE 754
    if found <= {kinds.BIGINT, kinds.DECIMAL, kinds.DOUBLE}:
        return kinds.DOUBLE if exact else kinds.TEXT
    return kinds.TEXT
