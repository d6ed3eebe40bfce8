"""Log files of engines stay small, however much an engine is made to write."""

from pathlib import Path

from cell.runtime import log_files


def test_what_is_set_aside_is_the_end_and_no_more_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    lines = [f"line {number}\n" for number in range(100_000)]
    path.write_text("".join(lines))
    with path.open("a") as engine:
        log_files.rotate(path, 10_000)
        assert path.stat().st_size == 0
        engine.write("and on\n")
    aside = path.with_suffix(".log.1")
    assert aside.stat().st_size == 10_000
    assert log_files.tail(path, 3).decode() == "".join([*lines[-2:], "and on\n"])
