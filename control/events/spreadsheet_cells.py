"""Cells of a CSV file that no spreadsheet takes for a formula."""

from typing import Final

# What a spreadsheet takes for the beginning of a formula, also in full width, as some of East Asia
# do; and what such a cell begins with here.
_FORMULA: Final = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",
    "'",
)


def escaped(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def unescaped(cell: str) -> str:
    """What was escaped, as it was."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell
