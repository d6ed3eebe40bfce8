"""Small rooms: the lengths of files, functions and handlers, counted."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
HANDLER_LINES_MAX = 15


def python_files() -> list[Path]:
    # Files git does not track yet count too, so that a habit holds before the commit.
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return [ROOT / name for name in sorted(set(listed)) if (ROOT / name).exists()]


FILES = python_files()


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function with the lines of its body, from the first statement behind the docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and node.body[1:] else node.body
            yield node.name, (node.end_lineno or 0) - body[0].lineno + 1


def test_there_are_files_to_hold() -> None:
    assert len(FILES) > 20


@pytest.mark.parametrize("path", FILES, ids=names)
def test_a_file_fits_one_reading(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= FILE_LINES_MAX, f"{lines} lines: two rooms in one?"


@pytest.mark.parametrize("path", FILES, ids=names)
def test_a_function_fits_a_screen(path: Path) -> None:
    long = [(name, lines) for name, lines in functions(path) if lines > FUNCTION_LINES_MAX]
    assert not long


@pytest.mark.parametrize(
    "path",
    [one for one in FILES if one.parent.name == "handlers" and not one.stem.endswith("views")],
    ids=names,
)
def test_a_handler_is_short(path: Path) -> None:
    long = [(name, lines) for name, lines in functions(path) if lines > HANDLER_LINES_MAX]
    assert not long


@pytest.mark.parametrize("path", FILES, ids=names)
def test_a_module_says_what_it_owns(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring, "the first line of a module says what it owns"


def test_no_room_is_named_for_leftovers() -> None:
    leftovers = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
    assert not [names(path) for path in FILES if path.stem in leftovers]
