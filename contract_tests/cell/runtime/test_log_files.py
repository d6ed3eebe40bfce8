"""Log files of engines stay small, however much an engine is made to write."""

import asyncio
import subprocess
import threading
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("content", [b"", b"a line\n"])
def test_what_is_reserved_past_the_end_is_given_back(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    path.write_bytes(content)
    subprocess.run(["fallocate", "--keep-size", "--length=5000000", str(path)], check=True)
    log_files.rotate(path, 100_000)
    assert path.stat().st_blocks * 512 < 100_000
    assert log_files.tail(path, 3) == content


def test_the_last_lines_are_found_whatever_the_file_ends_with(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    path.write_bytes(b"\n\na\nb\r\nc")
    kept = [log_files.tail(path, lines) for lines in range(4)]
    assert kept == [b"", b"c", b"b\r\nc", b"a\nb\r\nc"]
    path.write_bytes(b"a\n\n")
    assert [log_files.tail(path, lines) for lines in (1, 2, 9)] == [b"\n", b"a\n\n", b"a\n\n"]


def test_files_are_read_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of nothing but ends of lines takes its while."""
    path = tmp_path / "engine.log"
    path.write_text("first\n")
    threads = []
    tail = log_files.tail

    def noted(path: Path, lines: int) -> bytes:
        threads.append(threading.current_thread())
        with path.open("a") as engine:
            engine.write("meanwhile\n")
        return tail(path, lines)

    async def followed() -> bytes:
        async with asyncio.timeout(20):
            following = log_files.follow(path, 1, lambda: False)
            return b"".join([await anext(following), await anext(following)])

    monkeypatch.setattr(log_files, "tail", noted)
    # What is written meanwhile is rather there twice than not at all.
    assert asyncio.run(followed()).endswith(b"meanwhile\n")
    assert threading.main_thread() not in threads
