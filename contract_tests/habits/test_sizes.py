"""Small rooms: the lengths of files, functions and handlers, counted."""

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

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


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function with the lines of its body, from the first statement behind the docstring."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and node.body[1:] else node.body
            yield node.name, (node.end_lineno or 0) - body[0].lineno + 1


def test_there_are_files_to_hold() -> None:
    assert len(FILES) > 20


def test_a_file_fits_one_reading() -> None:
    lengths = {names(path): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX}


def test_a_function_fits_a_screen() -> None:
    assert not too_long(FILES, FUNCTION_LINES_MAX)


def test_a_handler_is_short() -> None:
    rooms = [path for path in FILES if path.relative_to(ROOT).parts[0] == "handlers"]
    handlers = [path for path in rooms if not path.stem.endswith("views")]
    assert handlers
    assert not too_long(handlers, HANDLER_LINES_MAX)


def too_long(paths: list[Path], lines_max: int) -> list[str]:
    return [
        f"{names(path)}: {name} has {lines} lines"
        for path in paths
        for name, lines in functions(path)
        if lines > lines_max
    ]


def test_a_module_says_what_it_owns() -> None:
    """In the first line of its docstring."""
    assert not [names(path) for path in FILES if not ast.get_docstring(parsed(path))]


def test_no_room_is_named_for_leftovers() -> None:
    leftovers = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
    assert not [names(path) for path in FILES if path.stem in leftovers]
